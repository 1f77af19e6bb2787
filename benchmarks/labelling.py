"""How quick, how small and how safe `riskad label` is.

python benchmarks/labelling.py --rows 1000000 --columns 30    # seconds and memory on a large table
python benchmarks/labelling.py --kills 100                    # kill -9 while answers come

The first makes a CSV, starts the command, and times until the first row to judge is there. It then
answers with a short look at each row, while fits run in the background, and times each next row and
each answer, which is on the disk when it returns, beside an empty request (a small file): on a busy
machine that tells how much of the time is the machine's. Memory is that of the server and its
processes together (proportional set size). The second starts the command, answers, and kills the
server at a random moment, over and over; it counts answers that were acknowledged and are not in
the journal.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.labelling import Client, make_payments

from riskad.labelling.journal import Journal


def make_table(path: Path, rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    bad = rng.random(rows) < 0.01
    table = {"id": pl.Series([f"P{i:07}" for i in range(rows)])}
    for j in range(columns - 6):
        table[f"x{j}"] = (rng.normal(0, 1, rows) + (3 * bad if j < 6 else 0)).round(4)
    for j in range(5):
        table[f"c{j}"] = rng.choice(np.array([f"k{i}" for i in range(8)]), rows)
    pl.DataFrame(table).write_csv(path)


def start(table: Path, journal: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "riskad", "label", str(table), "--journal", str(journal)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process.stdout as printed:
        return process, printed.readline().rpartition(" ")[2].strip()


def processes_of(pid: int) -> list[int]:
    """A process and those that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        children = (task / "children").read_text().split()
        found += [each for child in children for each in processes_of(int(child))]
    return found


def memory_of(pid: int) -> dict[str, float]:
    """Proportional set sizes in GiB: the server's, and that of all its processes."""
    sizes = []
    for each in processes_of(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        sizes.append(int(text.split("Pss:")[1].split()[0]) / 2**20)
    return {"server": sizes[0], "all": sum(sizes)}


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watch(threading.Thread):
    """The most memory that was seen."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.most = pid, {"server": 0.0, "all": 0.0}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            try:
                now = memory_of(self.pid)
            except OSError:
                return
            self.most = {name: max(size, now[name]) for name, size in self.most.items()}


def timed(function, *arguments, **options):
    begin = time.perf_counter()
    return function(*arguments, **options), time.perf_counter() - begin


def measure(rows: int, columns: int, seconds: float) -> dict[str, object]:
    with TemporaryDirectory() as folder:
        table, journal = Path(folder, "table.csv"), Path(folder, "labels.jsonl")
        make_table(table, rows, columns)
        begin = time.perf_counter()
        process, address = start(table, journal, "--id", "id")
        watch = Watch(process.pid)
        watch.start()
        try:
            client = Client(address)
            card = client.get("/api/next", tab="bench", n=1)[0]
            first, cpu = time.perf_counter() - begin, cpu_of(process.pid)
            times = answer_for(client, card, seconds)
            calls = 4 * times["answers"]
            per_call = 1000 * (cpu_of(process.pid) - cpu) / calls
        finally:
            watch.ended.set()
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {
        "rows": rows,
        "columns": columns,
        "seconds to the first row": round(first, 2),
        "of these processor seconds": round(cpu, 2),
        "processor ms of the server per call": round(per_call, 2),
        **times,
        "most memory, GiB": {name: round(size, 2) for name, size in watch.most.items()},
        "load": os.getloadavg()[0],
    }


def answer_for(client: Client, card: dict, seconds: float) -> dict[str, object]:
    """Judge rows as the page does, with a short look at each; every call is timed."""
    nexts, answers, empty, fits, end = [], [], [], [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        cells = {cell["column"]: cell["text"] for cell in card["cells"]}
        mean = np.mean([float(cells[f"x{j}"]) for j in range(6)])
        label = "anomaly" if mean > 1.5 else "normal"
        (status, _), took = timed(client.answer, card["row"], label, source=card["source"])
        assert status == 200
        answers.append(took)
        (card, *_), took = timed(client.get, "/api/next", tab="bench", n=1)
        nexts.append(took)
        cookie = {"Cookie": client.cookie}
        empty.append(timed(client.request, "GET", "/static/icon.svg", headers=cookie)[1])
        state = client.get("/api/state")
        fits.append((bool(state["progress"]), state["fits"]))
        time.sleep(0.05)
    running = np.array([progress for progress, _ in fits])
    return {
        "answers": len(answers),
        "fits": fits[-1][1],
        "next row, ms": quantiles(np.array(nexts)),
        "next row while a fit runs, ms": quantiles(np.array(nexts)[running]),
        "answer on disk, ms": quantiles(np.array(answers)),
        "empty request, ms": quantiles(np.array(empty)),
    }


def quantiles(seconds: np.ndarray) -> dict[str, float]:
    if not len(seconds):
        return {}
    found = np.quantile(1000 * seconds, (0.5, 0.99))
    return {"median": round(found[0], 1), "p99": round(found[1], 1), "calls": len(seconds)}


def kill(times: int, seed: int) -> dict[str, object]:
    """Kill the server over and over; what it acknowledged must be in the journal."""
    chance, said, lost, acknowledged = random.Random(seed), {}, 0, 0
    with TemporaryDirectory() as folder:
        table, journal = Path(folder, "cards.csv"), Path(folder, "labels.jsonl")
        make_payments(300)[0].write_csv(table)
        for done in range(times):
            process, address = start(table, journal, "--who", "ada", "--id", "card")
            client = Client(address)
            threading.Timer(chance.uniform(0.0, 2.0), process.kill).start()
            try:
                while True:
                    row, label = chance.randint(1, 300), chance.choice(["normal", "anomaly"])
                    status, _ = client.answer(row, label, before=said.get(row, ""))
                    assert status == 200
                    said[row] = label
                    acknowledged += 1
            except (OSError, HTTPException):
                process.wait()
            kept = {answer.row: answer.label for answer in Journal(journal).log}
            under_way = {row: label}
            lost += sum(
                kept.get(each) not in (value, under_way.get(each)) for each, value in said.items()
            )
            said = kept
            print(f"{done + 1} kills, {acknowledged:,} answers, {lost} lost", file=sys.stderr)
        torn = Journal(journal).unreadable
    return {"kills": times, "acknowledged": acknowledged, "lost": lost, "torn lines": torn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    found = (
        kill(told.kills, told.seed)
        if told.kills
        else measure(told.rows, told.columns, told.seconds)
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
