"""Play many inputs and write what came of them, or play one again and show it.

Examples:

    python -m tests.fuzz --inputs 100000 --seed 0 --out results/fuzz
    python -m tests.fuzz --inputs 20000 --kind model --out results/fuzz/model_files
    python -m tests.fuzz --kind csv --number 1234
"""

import argparse
import sys

from . import runner


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--inputs", type=int, default=2000, help="inputs to play  [2000]")
    parser.add_argument("--seed", type=int, default=0, help="other seed, other inputs  [0]")
    parser.add_argument("--processes", type=int, default=2, help="workers  [2]")
    parser.add_argument("--out", help="folder for summary.json and README.md")
    parser.add_argument(
        "--kind", choices=(*runner.KINDS, "model"), help="only inputs of this kind, or model files"
    )
    parser.add_argument("--number", type=int, help="play this one of its kind, and show it")
    choices = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")  # hostile text is shown, too
    if choices.number is not None:
        if choices.kind not in runner.KINDS:
            parser.error(f"--number needs --kind, one of {', '.join(runner.KINDS)}")
        return _show(choices.kind, choices.number, choices.seed)
    groups = {None: runner.KINDS, "model": runner.MODEL_KINDS}
    kinds = groups.get(choices.kind, (choices.kind,))
    summary = runner.run(choices.inputs, choices.seed, kinds, choices.processes, _progress)
    for group in summary["failures"]:
        print(f"{group['count']:6,} {group['verdict']:12} {group['kind']:8} {group['where']}")
        print(f"       {group['replay']}\n       {group['message'].strip().splitlines()[-1:]}")
    print({name: summary[name] for name in ("inputs", "outcomes", "peak_memory_mb", "seconds")})
    if choices.out:
        runner.write(summary, choices.out)
    return bool(summary["failures"])


def _progress(done, failed):
    if failed is not None:
        print(failed, file=sys.stderr, flush=True)
    if done % 1000 == 0:
        print(f"{done:,} inputs", file=sys.stderr, flush=True)


def _show(kind, number, seed):
    """Play one input in this process, under the limit of memory of the workers."""
    runner.set_threads()
    from . import play

    with runner.store_folder() as store:
        for name in runner.files():
            play.prepare(name, store)
        runner.limit_memory()
        played = play.play(
            kind, number, seed, store, tell=lambda step: print("$", step, flush=True)
        )
    for result in played:
        print(f"\n$ {result.step}\n{result.message}\n=> {result.verdict} {result.where}")
    return play.is_failure(played[-1].verdict)


if __name__ == "__main__":
    sys.exit(main())
