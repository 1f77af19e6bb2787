"""How quick and how steady `riskad serve` is, and whether `riskad score` scores every row once.

`serving` starts the command in a process of its own: one row at a time ("latency"), 10,000 rows at
a time ("bulk"), 50 new models under load, with broken files between them ("reloads"), and 20,000
malformed requests; `riskad label` is killed 100 times while answers come ("label kills"). An empty
request stands beside each row, the library beside each bulk, in turns, and processor time of the
server, all of its threads together, beside the clock. `score-kills` kills `riskad score --add`
at random moments (`results/scoring/README.md`).
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import riskad
from experiments.runner import Cell, Experiment
from experiments.speed.timing import by_method, flat, least_seconds
from experiments.summaries import grid, json_page
from riskad.app.journal import Journal
from riskad.app.score import score_table

sys.path.append(str(Path(__file__).parents[2] / "tests"))  # as pytest does

from support import killing, labelling, serving


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Return quantiles in milliseconds."""
    found = np.quantile(1e3 * np.array(seconds), (0.5, 0.99, 0.999)).round(3).tolist()
    return dict(zip(("median", "p99", "p999"), found, strict=True))


# --- riskad serve ----------------------------------------------------------------------------


def _make_model(folder: Path, model: str, seed: int = 0) -> Path:
    path = folder / f"{model}_{seed}.riskad"
    serving.make_model(path, seed, model, n=3000)
    return path


def whole_cpu(pid: int) -> float:
    """Seconds of processor time, to a hundredth, those of threads that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_cpu(pid: int) -> float:
    """Seconds of processor time that the threads that run have taken, to a nanosecond."""
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended
            continue
    return seconds


def in_turns(
    sides: Mapping[str, tuple[Callable[[], Any], Callable[[], float]]], turns: int, warm_up: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return seconds of calls by the clock and by the processor, of sides that take turns."""
    wall: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(warm_up + turns):
        for name, (call, clock) in sides.items():
            before, begin = clock(), time.perf_counter()
            call()
            seconds, taken = time.perf_counter() - begin, clock() - before
            if turn >= warm_up:
                wall[name].append(seconds)
                cpu[name].append(taken)
    return wall, cpu


def latency(folder: Path, model: str, requests: int = 1500) -> dict[str, Any]:
    """Times of a row and of an empty request, in turns, over one connection."""
    rows = iter([json.dumps(row) for row in serving.make_bodies()] * requests)
    with serving.Serving(_make_model(folder, model)) as server, server.client() as client:

        def ask(*request: str) -> None:
            status, _, body = client.request(*request)
            assert status == 200, body

        sides = {
            "row": (
                lambda: ask("POST", "/score", next(rows)),
                lambda: thread_cpu(server.process.pid),
            ),
            "empty": (lambda: ask("GET", "/health"), lambda: thread_cpu(server.process.pid)),
        }
        wall, cpu = in_turns(sides, requests, warm_up=50)
    figures = {f"{name}, ms": spread(times) for name, times in wall.items()}
    figures |= {f"{name}, processor ms": spread(times) for name, times in cpu.items()}
    beside = figures["row, ms"]["p99"] - figures["empty, ms"]["p99"]
    return {"requests": requests, "p99 beside an empty request, ms": round(beside, 3), **figures}


def bulk(folder: Path, model: str, n: int = 10_000, turns: int = 5) -> dict[str, Any]:
    """Rows per second of the server and of the library, which has the table in memory."""
    path, rows = _make_model(folder, model), serving.make_bodies(n)
    body, frame, loaded = json.dumps({"rows": rows}), pl.DataFrame(rows), riskad.load(path)
    answers: dict[str, Any] = {}
    with serving.Serving(path) as server, server.client() as client:

        def served() -> None:
            answers["served"] = client.request("POST", "/score", body)[2]

        def library() -> None:
            answers["library"] = score_table(loaded, frame)[0]

        sides = {
            "served": (served, lambda: whole_cpu(server.process.pid)),
            "library": (library, time.process_time),
        }
        wall, cpu = in_turns(sides, turns, warm_up=1)
    ours = np.array([row["anomaly_score"] for row in json.loads(answers["served"])["rows"]])
    off = np.abs(ours - answers["library"]["anomaly_score"].to_numpy()).max()
    rates, cpu_rates = (
        {name: n / np.median(seconds) for name, seconds in times.items()} for times in (wall, cpu)
    )
    return {
        "rows": n,
        "turns": turns,
        "rows per second": {name: round(rate) for name, rate in rates.items()},
        "share of the library's": round(rates["served"] / rates["library"], 3),
        "rows per processor second": {name: round(rate) for name, rate in cpu_rates.items()},
        "the same, processor": round(cpu_rates["served"] / cpu_rates["library"], 3),
        "largest difference of scores": float(off),
    }


def reloads(folder: Path, model: str, n: int = 50) -> dict[str, Any]:
    """Models that take turns in one file while clients ask."""
    models = [_make_model(folder, *each) for each in (("shallow",), ("auto",), ("shallow", 5))]
    heard = serving.reload_under_load(folder, models, n, clients=2)
    statuses = sum((each.statuses for each in heard), Counter[int]())
    return {
        "reloads": n,
        "answers": statuses.total(),
        "statuses": {str(status): count for status, count in statuses.items()},
        "wrong answers": int(sum(each.wrong for each in heard)),
        "models that answered": len(set().union(*(each.versions for each in heard))),
    }


def malformed(folder: Path, model: str, requests: int = 20_000) -> dict[str, Any]:
    """What becomes of requests with wrong types, sizes, syntax, heads, labels, or of garbage."""
    path, journal = _make_model(folder, model), folder / "labels.jsonl"
    with serving.Serving(path, "--journal", str(journal)) as server:
        before, longest, statuses = server.memory(), 0.0, Counter[int]()
        for number in range(requests):
            begin = time.perf_counter()
            statuses[serving.send_malformed(server.place, number, seed=7)] += 1
            longest = max(longest, time.perf_counter() - begin)
        after = server.memory()
        with server.client() as client:
            good = client.request("POST", "/score", json.dumps(serving.make_bodies(1)[0]))[0]
    return {
        "requests": requests,
        "statuses, 0 where the connection was closed": {
            str(status): count for status, count in sorted(statuses.items())
        },
        "server errors": sum(count for status, count in statuses.items() if status >= 500),
        "longest, s": round(longest, 2),
        "memory before and after, MiB": [round(before), round(after)],
        "a good request afterwards": good,
    }


def label_kills(folder: Path, _: str, kills: int = 100) -> dict[str, Any]:
    """Kill the labelling page at random moments; count acknowledged answers that are gone."""
    table, journal, chance = folder / "cards.csv", folder / "labels.jsonl", random.Random(0)
    labelling.make_payments(200)[0].write_csv(table)
    answers: dict[int, str] = {}
    lost = 0
    for _ in range(kills):
        process, address = labelling.start_server(table, journal)
        client = labelling.Client(address)
        row, label = labelling.answer_until_killed(process, client, answers, chance)
        stored = {answer.row: answer.label for answer in Journal(journal).log}
        lost += sum(stored.get(other) != answers[other] for other in answers if other != row)
        # The answer that was under way may have been stored, or not.
        lost += stored.get(row, "") not in (answers.get(row, ""), label)
        answers = stored
    return {"kills": kills, "acknowledged": len(Journal(journal).log), "lost": lost}


SERVING: dict[str, tuple[Callable[[Path, str], dict[str, Any]], str]] = {
    "latency, shallow": (latency, "shallow"),
    "latency, auto": (latency, "auto"),
    "bulk, shallow": (bulk, "shallow"),
    "bulk, auto": (bulk, "auto"),
    "reloads": (reloads, ""),
    "malformed requests": (malformed, "auto"),
    "label kills": (label_kills, ""),
}


def run_serving(cell: Cell) -> dict[str, Any]:
    """Return the figures of one of the measurements."""
    measure, model = SERVING[cell["method"]]
    with TemporaryDirectory() as folder:
        return flat(measure(Path(folder), model)) | {"load": round(os.getloadavg()[0], 1)}


# --- riskad score --add ----------------------------------------------------------------------


def run_score_kills(cell: Cell, kills: int = 100, step: int = 500) -> dict[str, Any]:
    """Grow a table by `step` rows before each run, until so many were killed."""
    kind, rng = cell["method"], random.Random(cell["method"])
    events = killing.make_events(step * (4 * kills + 2)).drop("status")
    runs = killed = twice = torn = 0
    with TemporaryDirectory() as name, chdir(name), killing.Commands() as commands:
        labels = riskad.FitSpec(label="status", normal=["ok"], anomaly=["fraud"])
        options: Any = {"id": "payment", "drop": ["paid"], "model": "shallow"}
        options["settings"] = {"lam": 0.01}
        fit = riskad.fit_table(killing.make_events(300), labels, **options)
        riskad.save(fit.model, "model.riskad", report=fit.report)
        call = ["score", "model.riskad", "events.parquet", *killing.TARGETS[kind]]
        call.append("--add")
        events[:step].write_parquet("events.parquet")
        whole = least_seconds({"": lambda: commands.run(*call)}, 1)[""]
        while killed < kills:
            runs += 1
            events[: step * (runs + 1)].write_parquet("events.parquet")
            killed += commands.run(*call, kill_after=rng.uniform(0, 1.1 * whole)) == -9
            ids = killing.read_ids(kind, Path(name))
            twice += len(ids) - len(set(ids))
            torn += sorted(set(ids)) != list(range(step * (len(set(ids)) // step)))
        commands.run(*call)
        ids = killing.read_ids(kind, Path(name))
    return {
        "runs": runs,
        "killed": killed,
        "rows": step * (runs + 1),
        "rows_twice": twice + len(ids) - len(set(ids)),
        "partial_runs_seen": torn,
        "rows_missing_at_the_end": step * (runs + 1) - len(set(ids)),
    }


EXPERIMENTS = (
    Experiment(
        name="serving",
        title="How quick and how steady riskad serve is",
        cells=grid(method=SERVING),
        run_cell=run_serving,
        report=json_page("serving.json", by_method),
        folder="serving",
        minutes="15 minutes",
    ),
    Experiment(
        name="score-kills",
        title="Whether every row is scored once, whenever riskad score is killed",
        cells=grid(method=killing.TARGETS),
        run_cell=run_score_kills,
        report=json_page("kills.json", by_method),
        folder="scoring",
        needs="duckdb",
        minutes="10 minutes",
    ),
)
