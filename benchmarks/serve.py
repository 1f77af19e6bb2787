"""How quick, how steady and how hard to upset `riskad serve` is.

python benchmarks/serve.py latency --out results/serving      # one row at a time
python benchmarks/serve.py bulk --out results/serving         # 10,000 rows at a time
python benchmarks/serve.py reloads --out results/serving      # 50 new models under load
python benchmarks/serve.py fuzz --out results/serving         # 20,000 malformed requests
python benchmarks/serve.py load --minutes 30 --out results/serving

Each starts the command in a process of its own and talks to it over HTTP. On a machine that others
use too, the time on the clock is theirs as well: an empty request (/health) stands beside each
single row, the library beside each bulk, in turns, and processor time of the server, all of its
threads together, beside the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.serving import Client, Serving, Slow, make_bodies, make_model, send_malformed

from riskad.app.model_files import load, read_header
from riskad.app.score import score_table

Record = dict[str, object]
MODELS = ("shallow", "auto")
ROUNDING = 1e-4  # of the network, in single precision, whose sums depend on a row's company


def spread(seconds: list[float]) -> dict[str, float]:
    times = 1e3 * np.array(seconds)
    found = {
        "median": np.median(times),
        "p99": np.quantile(times, 0.99),
        "p999": np.quantile(times, 0.999),
    }
    return {name: round(float(value), 3) for name, value in found.items()}


def made(folder: Path, model: str, seed: int = 0) -> Path:
    path = folder / f"{model}_{seed}.riskad"
    make_model(path, seed, model, n=3000)
    return path


# --- one row ------------------------------------------------------------------------------


def latency(folder: Path, options: argparse.Namespace) -> Record:
    return {model: one_by_one(made(folder, model), options.requests) for model in MODELS}


def one_by_one(model: Path, n: int) -> Record:
    """Times of a row and of an empty request, in turns, over one connection."""
    rows = [json.dumps(row) for row in make_bodies()]
    wall: dict[str, list[float]] = {"row": [], "empty": []}
    cpu: dict[str, list[float]] = {"row": [], "empty": []}
    with Serving(model) as server, server.client() as client:
        ask = {
            "row": lambda i: client.request("POST", "/score", rows[i % len(rows)]),
            "empty": lambda _: client.request("GET", "/health"),
        }
        for i in range(n + 50):
            for name, request in ask.items():
                before, begin = server.cpu(), time.perf_counter()
                status, _, body = request(i)
                seconds, taken = time.perf_counter() - begin, server.cpu() - before
                assert status == 200, body
                if i >= 50:
                    wall[name].append(seconds)
                    cpu[name].append(taken)
    p99 = {
        name: {k: np.quantile(v, 0.99) for k, v in times.items()}
        for name, times in (("wall", wall), ("cpu", cpu))
    }
    return {
        "requests": n,
        "row, ms": spread(wall["row"]),
        "empty, ms": spread(wall["empty"]),
        "row, processor ms": spread(cpu["row"]),
        "empty, processor ms": spread(cpu["empty"]),
        "p99 beside an empty request, ms": round(
            1e3 * (p99["wall"]["row"] - p99["wall"]["empty"]), 3
        ),
        "the same, processor ms": round(1e3 * (p99["cpu"]["row"] - p99["cpu"]["empty"]), 3),
        "load": round(os.getloadavg()[0], 1),
    }


# --- many rows ----------------------------------------------------------------------------


def bulk(folder: Path, options: argparse.Namespace) -> Record:
    return {model: in_turns(made(folder, model), options.rows, options.turns) for model in MODELS}


def in_turns(path: Path, n: int, turns: int) -> Record:
    """Rows per second of the server and of the library, which has the table in memory."""
    rows = make_bodies(n)
    body, frame, model = json.dumps({"rows": rows}), pl.DataFrame(rows), load(path)
    wall: dict[str, list[float]] = {"served": [], "library": []}
    cpu: dict[str, list[float]] = {"served": [], "library": []}
    with Serving(path) as server, server.client() as client:
        for turn in range(turns + 1):
            for name in wall:
                clock = server.long_cpu if name == "served" else time.process_time
                before, begin = clock(), time.perf_counter()
                if name == "served":
                    status, _, answer = client.request("POST", "/score", body)
                else:
                    scored, _ = score_table(model, frame)
                if turn:
                    wall[name].append(time.perf_counter() - begin)
                    cpu[name].append(clock() - before)
        ours = np.array([row["anomaly_score"] for row in json.loads(answer)["rows"]])
    off = float(np.abs(ours - scored["anomaly_score"].to_numpy()).max())
    rates = {name: n / np.median(times) for name, times in wall.items()}
    rates_cpu = {name: n / np.median(times) for name, times in cpu.items()}
    return {
        "rows": n,
        "turns": turns,
        "rows per second": {name: round(rate) for name, rate in rates.items()},
        "share of the library's": round(rates["served"] / rates["library"], 3),
        "rows per processor second": {name: round(rate) for name, rate in rates_cpu.items()},
        "the same, processor": round(rates_cpu["served"] / rates_cpu["library"], 3),
        "largest difference of scores": off,
        "status": status,
        "load": round(os.getloadavg()[0], 1),
    }


# --- reloads ------------------------------------------------------------------------------


class Asking(threading.Thread):
    """Asks for scores of known rows, and compares them with those of the model that is named."""

    def __init__(self, place: tuple[str, int], expected: dict[str, np.ndarray], rows: list[object]):
        super().__init__(daemon=True)
        self.place, self.expected, self.rows = place, expected, rows
        self.ended, self.statuses, self.wrong = threading.Event(), Counter(), 0
        self.largest = 0.0  # difference
        self.versions: Counter[str] = Counter()

    def run(self) -> None:
        rng = np.random.default_rng(threading.get_ident() % 2**32)
        with Client(self.place) as client:
            while not self.ended.is_set():
                picked = rng.integers(
                    len(self.rows), size=rng.choice([1, 3, 700], p=[0.6, 0.3, 0.1])
                )
                status, said = client.post("/score", {"rows": [self.rows[i] for i in picked]})
                self.statuses[status] += 1
                if status == 200:
                    self.compare(said, picked)

    def compare(self, said: dict[str, object], picked: np.ndarray) -> None:
        scores = np.array([row["anomaly_score"] for row in said["rows"]])
        version = said["model_version"]
        self.versions[version] += 1
        known = self.expected.get(version)
        away = np.inf if known is None else float(np.abs(scores - known[picked]).max())
        self.largest = max(self.largest, away)
        self.wrong += away > ROUNDING


def reload_under_load(folder: Path, models: list[Path], n: int, clients: int = 3) -> Record:
    """Let models take turns in one file, with a broken one now and then, while clients ask."""
    rows = make_bodies(500)
    frame = pl.DataFrame(rows)
    versions = [read_header(path).checksum[:12] for path in models]
    expected = {
        version: score_table(load(path), frame)[0]["anomaly_score"].to_numpy()
        for version, path in zip(versions, models, strict=True)
    }
    served = folder / "served.riskad"
    shutil.copy(models[0], served)
    broken = 0
    with Serving(served) as server, server.client() as client:
        asking = [Asking(server.place, expected, rows) for _ in range(clients)]
        for each in asking:
            each.start()
        for turn in range(1, n + 1):
            if turn % 10 == 0:
                served.write_bytes(models[0].read_bytes()[: -100 * turn])
                wait_for(lambda: bool(client.get("/health")["reload_error"]))
                broken += 1
            part = folder / "part"
            shutil.copy(models[turn % len(models)], part)
            os.replace(part, served)
            version = versions[turn % len(models)]
            wait_for(
                lambda v=version: (
                    client.get("/health") | {"reload_error": "", "model_version": v}
                    == client.get("/health")
                )
            )
            wait_for(lambda v=version: any(each.versions[v] for each in asking))
        for each in asking:
            each.ended.set()
        for each in asking:
            each.join()
    return {
        "reloads": n,
        "broken files between them": broken,
        "answers": sum(sum(each.versions.values()) for each in asking),
        "wrong answers": sum(each.wrong for each in asking),
        "largest difference of scores": max(each.largest for each in asking),
        "statuses": dict(sum((each.statuses for each in asking), Counter())),
        "models that answered": len(set().union(*(each.versions for each in asking))),
    }


def wait_for(true: Callable[[], bool], seconds: float = 3600.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.05)


def reloads(folder: Path, options: argparse.Namespace) -> Record:
    models = [made(folder, "shallow"), made(folder, "auto"), made(folder, "shallow", 5)]
    return reload_under_load(folder, models, options.reloads)


# --- malformed requests -------------------------------------------------------------------


def fuzz_server(
    model: Path, journal: Path, n: int, slow: int, seed: int, threads: int = 2
) -> Record:
    """Send malformed requests, and slow ones beside them, and look whether the server minds."""
    statuses: Counter[int] = Counter()
    lock, places = threading.Lock(), iter(range(n))
    longest = 0.0
    with Serving(model, "--journal", str(journal)) as server:

        def work() -> None:
            nonlocal longest
            while True:
                with lock:
                    number = next(places, None)
                if number is None:
                    return
                begin = time.perf_counter()
                status = send_malformed(server.place, number, seed)
                with lock:
                    statuses[status] += 1
                    longest = max(longest, time.perf_counter() - begin)

        dawdling = [Slow(server.place, ("head", "drip", "body")[i % 3], 60) for i in range(slow)]
        workers = [threading.Thread(target=work) for _ in range(threads)]
        with server.client() as client:
            client.post("/score", make_bodies(1)[0])
        before, most = server.memory(), 0.0
        for each in [*dawdling, *workers]:
            each.start()
        while any(worker.is_alive() for worker in workers):
            most = max(most, server.memory())
            time.sleep(0.5)
        for each in dawdling:
            each.join(90)
        assert sum(statuses.values()) == n, "a worker ended early"
        with server.client() as client:
            status, _ = client.post("/score", make_bodies(1)[0])
        after = server.memory()
    return {
        "requests": sum(statuses.values()),
        "statuses, 0 where the connection was closed": {
            str(k): v for k, v in sorted(statuses.items())
        },
        "server errors": sum(v for k, v in statuses.items() if k >= 500 and k != 503),
        "longest, s": round(longest, 2),
        "slow clients": slow,
        "slow clients that were let go": sum(
            each.status != -1 and each.lasted is not None for each in dawdling
        ),
        "longest of them, s": round(max((each.lasted or 0.0 for each in dawdling), default=0.0), 1),
        "memory before, at most and after, MiB": [round(before), round(most), round(after)],
        "a good request afterwards": status,
    }


def fuzz(folder: Path, options: argparse.Namespace) -> Record:
    model = made(folder, "shallow")
    return fuzz_server(model, folder / "labels.jsonl", options.requests_fuzz, 60, options.seed)


# --- load ---------------------------------------------------------------------------------


class Steady(threading.Thread):
    """Asks at a steady pace, or as quickly as it can."""

    def __init__(self, place: tuple[str, int], rows: list[str], pause: float):
        super().__init__(daemon=True)
        self.place, self.rows, self.pause = place, rows, pause
        self.ended, self.statuses, self.seconds = threading.Event(), Counter(), []

    def run(self) -> None:
        due, i = time.monotonic(), 0
        with Client(self.place) as client:
            while not self.ended.is_set():
                begin = time.perf_counter()
                status, _, _ = client.request("POST", "/score", self.rows[i % len(self.rows)])
                self.statuses[status] += 1
                self.seconds.append(time.perf_counter() - begin)
                i, due = i + 1, max(due + self.pause, time.monotonic() - 1)
                time.sleep(max(0.0, due - time.monotonic()))


def drive(
    server: Serving, rows: list[str], clients: int, pause: float, seconds: float
) -> list[Steady]:
    asking = [Steady(server.place, rows, pause) for _ in range(clients)]
    for each in asking:
        each.start()
    time.sleep(seconds)
    for each in asking:
        each.ended.set()
    for each in asking:
        each.join()
    return asking


def sustained(model: Path, minutes: float, share: float = 0.8, clients: int = 4) -> Record:
    """Load the server with a share of what it can do, and look at its memory meanwhile."""
    rows = [json.dumps(row) for row in make_bodies()]
    sizes: list[float] = []
    with Serving(model) as server, server.client() as client:
        quick = drive(server, rows, clients, 0.0, 15)
        capacity = sum(len(each.seconds) for each in quick) / 15
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(5):
                sizes.append(server.memory())
                client.get("/metrics")

        looking = threading.Thread(target=look)
        looking.start()
        asking = drive(server, rows, clients, clients / (share * capacity), 60 * minutes)
        ended.set()
        looking.join()
    times = [second for each in asking for second in each.seconds]
    third = max(1, len(sizes) // 3)
    return {
        "minutes": minutes,
        "requests per second at most": round(capacity),
        "requests per second": round(len(times) / (60 * minutes), 1),
        "statuses": dict(sum((each.statuses for each in asking), Counter())),
        "ms": spread(times),
        "memory in the first, middle and last third, MiB": [
            round(float(np.mean(part)), 1)
            for part in (sizes[:third], sizes[third : 2 * third], sizes[2 * third :])
        ],
        "load": round(os.getloadavg()[0], 1),
    }


def load_for_long(folder: Path, options: argparse.Namespace) -> Record:
    return {options.model: sustained(made(folder, options.model), options.minutes)}


PARTS = {"latency": latency, "bulk": bulk, "reloads": reloads, "fuzz": fuzz, "load": load_for_long}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--reloads", type=int, default=50)
    parser.add_argument("--requests-fuzz", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--model", choices=MODELS, default="auto")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        record = PARTS[options.part](Path(folder), options)
    said = json.dumps(record, indent=1, ensure_ascii=False)
    print(said)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{options.part}.json").write_text(said + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
