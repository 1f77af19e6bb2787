r"""Train the network of `riskad.PretrainedRAD` (torch; a GPU to be of use).

    python -m experiments.pretraining.train --start tables-2.npz --seconds 500 --total 1500 \
        --output first
    python -m experiments.pretraining.train --resume first --offset 500 --output second

Each step makes a batch on the device: mostly of real tables, else of synthetic ones. The loss is
the logistic loss of all rows without a label, both classes weighted alike in each table. The
learning rate follows a cosine over the total time, of which a run has a part.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.pretraining.batches import Batches, Real
from experiments.pretraining.network import Network, arrays, restore
from experiments.pretraining.split import hashes, load_table
from experiments.pretraining.synthetic import any_of, ranks

CONTEXTS = (96, 160, 256, 384, 448, 512, 768)
JUDGED = 128
SYNTHETIC_COLUMNS = (3, 4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 42)
RATE, CELLS, REAL = 1e-3, 600_000, 0.75  # learning rate, cells of a batch, share of real ones


def risk(scores: Tensor, state: Tensor, y: Tensor) -> Tensor:
    """Logistic risk of rows without a label, both classes weighted alike in each table."""
    free = state == 0
    odd, usual = (free & y).float(), (free & ~y).float()
    weight = sum(part / part.sum(1, keepdim=True).clamp(min=4) for part in (odd, usual)) / 2
    losses = functional.binary_cross_entropy_with_logits(scores, y.float(), reduction="none")
    return (losses * weight).sum(1).mean()


def auc(scores: Tensor, y: Tensor) -> Tensor:
    """Mean over the tables that have anomalies."""
    odd = y.sum(1).float()
    wins = (ranks(scores) * y).sum(1) - odd * (odd - 1) / 2
    return (wins / (odd * (y.shape[1] - odd)).clamp(min=1))[odd > 0].mean()


class Trainer:
    """Adam with a cosine schedule by the clock; what is kept is the average over late steps."""

    def __init__(self, network: Network, batches: Batches, cells: int = CELLS):
        device = batches.device
        self.network, self.average = network.to(device), copy.deepcopy(network).to(device)
        self.batches, self.device, self.cells = batches, device, cells
        self.steps, self.skipped = 0, 0
        if device == "cuda":
            for layer in (*network.layers, *network.row_layers):
                layer.compile(dynamic=True)
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98), fused=True
        )

    def batch(self) -> tuple[int, tuple[Tensor, Tensor, Tensor]]:
        """Rows of the context, and a batch of about as many cells as wanted."""
        real = float(torch.rand(())) < REAL
        context = CONTEXTS[any_of(0, len(CONTEXTS))]
        if real:
            columns = self.batches.real.some_columns()
        else:
            columns = SYNTHETIC_COLUMNS[any_of(0, len(SYNTHETIC_COLUMNS))]
        rows = context + JUDGED
        most = min(256, 65_000 // rows)  # what one launch of the attention takes
        B = max(4, min(most, self.cells // (rows * (columns + 3))))
        with torch.no_grad():
            return context, self.batches.make(B, columns, context, JUDGED, real=real)

    def step(self, done: float) -> tuple[int, Tensor, Tensor]:
        """One batch, with `done` the share of the time that is over: tables, risk, AUC."""
        rate = RATE * min(1, (self.steps + 1) / 300) * (1.02 + math.cos(math.pi * done)) / 2
        self.optimizer.param_groups[0]["lr"] = rate
        context, (said, state, y) = self.batch()
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.device == "cuda"):
            scores = self.network(said, state, context).float()
        loss = risk(scores, state, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.steps += 1
        if not torch.isfinite(norm):  # one such step would undo all before it
            self.skipped += 1
            return len(y), *(torch.full_like(norm, math.nan) for _ in range(2))
        self.optimizer.step()
        late = 1 - min(0.999, self.steps / (self.steps + 10))
        with torch.no_grad():
            both = (list(part.parameters()) for part in (self.average, self.network))
            torch._foreach_lerp_(*both, late)
        return len(y), loss.detach(), auc(scores[:, context:].detach(), y[:, context:])

    def save(self, folder: Path) -> None:
        """Weights as the package has them, and all that is needed to go on."""
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / "tables.npz", **arrays(self.average))  # type: ignore
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        torch.save({"steps": self.steps, **parts}, folder / "state.pt")

    def resume(self, folder: Path) -> None:
        """Go on from such files."""
        state = torch.load(folder / "state.pt", map_location=self.device, weights_only=True)
        self.steps = state["steps"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        return {"network": self.network, "average": self.average, "optimizer": self.optimizer}


# --- a run -------------------------------------------------------------------------------


def main() -> None:
    """Train for some seconds, and store the network and how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the network")
    parser.add_argument("--start", type=Path, help="weights of the package to go on from")
    parser.add_argument("--resume", type=Path, help="the output of a run to go on with")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--total", type=float, default=1500, help="seconds of all runs")
    parser.add_argument("--offset", type=float, default=0, help="seconds of the runs before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    tables = {table: load_table(table) for table in hashes("train")}
    network = Network()
    if options.start:
        restore(network, np.load(options.start))
    trainer = Trainer(network, Batches(Real(tables, options.device), options.device))
    if options.resume:
        trainer.resume(options.resume)
    progress = run(trainer, options)
    trainer.save(options.output)
    (options.output / "progress.json").write_text(json.dumps(progress, indent=1))


def run(trainer: Trainer, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps by the clock; the mean risk and AUC of the batches every two minutes."""
    begin, recent, progress = time.perf_counter(), [], []
    while (seconds := time.perf_counter() - begin) < options.seconds:
        n_tables, *figures = trainer.step((options.offset + seconds) / options.total)
        recent.append((torch.tensor(float(n_tables)), *figures))
        if seconds >= 120 * (len(progress) + 1):
            tables, risk_mean, auc_mean = (torch.stack(part) for part in zip(*recent, strict=True))
            line = {"seconds": round(options.offset + seconds, 1), "steps": trainer.steps}
            line |= {"skipped": trainer.skipped, "tables": int(tables.sum())}
            line |= {"risk": float(risk_mean.nanmean()), "auc": float(auc_mean.nanmean())}
            print(line, flush=True)
            progress.append(line)
            recent.clear()
    return progress


if __name__ == "__main__":
    main()
