"""The figures that the documents quote are those of results/, rounded as quoted.

A `Quote` is a few words of a document with `{}` in place of each figure, and beside it where each
figure comes from. A figure in `{~}` is rounded to tens or hundreds, its zeros do not count. Figures
of prose and tables that no quote covers fail a test, unless `NOT_MEASURED` says what they are.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median

import polars as pl
import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
NUMBER = rf"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|(?:{'|'.join(WORDS)})\b"

pytestmark = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="results/ is part of the repository, not of the package"
)


@dataclass
class Quote:
    document: str
    words: str
    figures: list

    def __str__(self):
        return f"{self.document}: {self.words}"

    @property
    def pattern(self):
        """The words as a regular expression with a group for each figure."""
        words = re.escape(self.words).replace(r"\ ", " ")
        return re.sub(r"\\{(?:\\?~)?\\}", lambda _: f"({NUMBER})", words)

    @property
    def rough(self):
        """Of each figure, whether its zeros do not count."""
        return [field == "{~}" for field in re.findall(r"{~?}", self.words)]


# --- where figures come from -------------------------------------------------------------------


@cache
def read(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@cache
def records(suite, part=None):
    """Records that succeeded; of the field those with 5 % labelled, of others those of a part."""
    frame = pl.read_parquet(RESULTS / suite / f"{suite}.parquet").filter(pl.col("status") == "ok")
    chosen = pl.col("budget") == "5 %" if suite == "field" else pl.col("experiment") == part
    return frame.filter(chosen).to_dicts()


def at(name, *keys, times=1.0):
    """The value under `keys` of a JSON file; `len` as a key counts, others may be functions."""

    def value():
        found = read(name)
        for key in keys:
            found = key(found) if callable(key) else found[key]
        return times * found

    return value


def core(name):
    """The ratio of the comparison in core.json whose name begins so."""
    return lambda: next(r["ratio"] for r in read("core.json")["results"] if name in r["name"])


def mean_of(suite, part, method, value="auc", **settings):
    """The mean over sets of the mean over trials."""

    def mean():
        by_set = {}
        for row in records(suite, part):
            if row["method"] == method and settings.items() <= row.items():
                by_set.setdefault(row["dataset"], []).append(row[value])
        return fmean(map(fmean, by_set.values()))

    return mean


def in_table(name, row, group=1):
    """A figure of a committed table, which other tests compare with the records."""
    return lambda: float(re.search(row, (RESULTS / name).read_text("utf-8"))[group])


def field_methods():
    """Those that were run on three splits of each of 19 sets."""
    counts = Counter(row["method"] for row in records("field"))
    return {method for method, n in counts.items() if n >= 3 * 19}


def others_of_field():
    return [m for m in field_methods() if m not in ("AutoRAD", "BoostedRAD", "ShallowRAD")]


def others_run_as_often():
    """Methods of others that have all the trials that AutoRAD has."""
    trials = {}
    for row in records("field"):
        trials.setdefault(row["method"], set()).add(row["trial"])
    return [m for m in others_of_field() if trials.get(m) == trials["AutoRAD"]]


def trials_of_recent():
    return 1 + max(row["trial"] for row in records("field") if row["method"] == "TabPFN v1")


def auto_beside_recent(value):
    """AutoRAD's mean over sets, of the trials that the recent peers have."""

    def mean():
        by_set = {}
        for row in records("field"):
            if row["method"] == "AutoRAD" and row["trial"] < trials_of_recent():
                by_set.setdefault(row["dataset"], []).append(row[value])
        return fmean(map(fmean, by_set.values()))

    return mean


def most_trials():
    return 1 + max(row["trial"] for row in records("field"))


def auto_seconds():
    """The median over the trials of sets with fewer than 10,000 rows."""
    rows = [r for r in records("field") if r["method"] == "AutoRAD"]
    return median(r["fit_seconds"] for r in rows if r["n_train"] + r["n_test"] < 10_000)


def fit_seconds(method):
    """The median over all trials."""
    rows = records("field")
    return lambda: median(r["fit_seconds"] for r in rows if r["method"] == method)


def field_row(words, method):
    """A row of the README's table."""
    return Quote(
        "README.md",
        f"| {words} | {{}} | {{}} | {{}} s |",
        [
            mean_of("field", None, method),
            mean_of("field", None, method, "average_precision"),
            fit_seconds(method),
        ],
    )


def peaks(n_rows, choose):
    """Of the memory of a streamed file, the smallest or largest in MB."""
    held = read("decisions/streaming.json")["records"]
    return lambda: choose(
        r["peak_mb"] for r in held if r["rows"] == n_rows and r["way"] == "streamed"
    )


def p_values(key):
    """Means over draws with 20 % anomalies."""
    return read("decisions/p_values.json")["rates"][1]["mean"][key]


def stream_largest(key):
    """The largest over orders and losses, of the rows kept by hundreds and the tight lambda."""
    rows = [s for s in read("scale/stream.json")["summaries"] if s["kept"] == 500]
    return lambda: max(row[key] for row in rows if row["lam"] == "tight")


def sampled(dataset, choose, model="BoostedRAD"):
    rows = [r for r in read("scale/sampling.json")["fits"] if r["dataset"] == dataset]
    return lambda: choose([row[model] for row in rows])


def spread(values):
    return max(values) - min(values)


BRIER = ("decisions/probabilities.json", "brier")
SUGGESTED = ("decisions/suggesting.json", "by_lambda", "cv")
LESS = (*SUGGESTED, "suggested less", "random", "area")
M_HUBER = r"\| m-Huber \|\s+(\d+) of 19 \|[^|]*\|\s+[\d.]+ \|\s+([\d.]+)"
ALL_IMAGES = r"\| \*all\*\s+\| \*(\d+) of 240\* \| [^|]*\|\s+\*([\d.]+)\* \|\s+\*([\d.]+)\*"
HUBER_CV = {"loss": "modified_huber", "lam": "cv"}

TABPFN_AND_AUTO = [
    mean_of("field", None, "TabPFN v1"),
    mean_of("field", None, "TabPFN v1", "average_precision"),
    auto_beside_recent("auc"),
    auto_beside_recent("average_precision"),
]

FIELD_TABLES = "field/tables/field.md"


def table_rows(document, heading, columns=None, rows=None):
    """Quotes of a table of results/, or of some of its columns and rows, by their first cell."""
    if not RESULTS.is_dir():
        return []
    below = (RESULTS / FIELD_TABLES).read_text("utf-8").partition(f"\n## {heading}")[2]
    lines = re.search(r"(?:^\|.*\n)+", below, flags=re.M)[0].splitlines()
    head, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    places = [head.index(name) for name in columns] if columns else range(len(head))
    shown = [row for row in body if rows is None or row[0] in rows]
    assert len(shown) == len(rows or body)
    return [
        Quote(document, f"| {' | '.join(row[place] for place in places)} |", []) for row in shown
    ]


CHOOSING = "theory/choosing.json"
WIDTH = (CHOOSING, "by_n_anomaly")
UNSEEN = ("decisions/kinds_unseen.json", "as it is", "labels")
GRAPH = ("onnx.json", "AutoRAD, 20 columns")
TO_95 = "labelling/orders.json"
DEVICE = "field/device.json"

QUOTES = [
    *table_rows(
        "docs/explanation/autorad.md",
        "5 % labelled: 10 methods",
        ["method", "AUC", "average precision", "rank in AUC", "best in AUC", "fit (s)"],
    ),
    *table_rows("docs/explanation/autorad.md", "AutoRAD less the best peer, by budget of labels"),
    *table_rows(
        "docs/explanation/contamination.md",
        "5 % labelled: 27 methods",
        ["method", "AUC", "average precision"],
        [
            *("AutoRAD", "BoostedRAD", "ExtraTrees", "ExtraTrees+U", "LightGBM", "LightGBM+U"),
            *("XGBoost", "XGBoost+U", "LogReg", "LogReg+U"),
        ],
    ),
    *table_rows(
        "docs/explanation/limits.md",
        "10 % labelled: 16 methods",
        ["method", "AUC", "average precision", "fit (s)"],
        ["AutoRAD", "ExtraTrees", "CatBoost", "RandomForest", "LogReg"],
    ),
    *table_rows(
        "docs/explanation/limits.md",
        "5 % labelled: 27 methods",
        ["method", "AUC", "average precision", "fit (s)"],
        ["AutoRAD", "BoostedRAD", "ShallowRAD"],
    ),
    Quote(
        "docs/howto/compress.md",
        "H200 scores {~} to {~} times as many rows",
        [lambda f=f: f(s["times_as_fast"] for s in read(DEVICE)["shapes"]) for f in (min, max)],
    ),
    Quote(
        "docs/explanation/limits.md",
        "raise the AUC of boosted trees from {} to {}, and",
        [at("trees.json", "BoostedRAD, a=0", "auc"), at("trees.json", "BoostedRAD", "auc")],
    ),
    Quote(
        "docs/explanation/limits.md",
        "of the AUC is then {} wide, and with ten or more {}",
        [at(*WIDTH, "2 to 3", "width"), at(*WIDTH, "10 or more", "width")],
    ),
    Quote(
        "docs/explanation/limits.md",
        "on vertebral `BoostedRAD` has an AUC of {} and extra trees {}",
        [
            at("trees.json", name, "auc_by_set", "vertebral")
            for name in ("BoostedRAD", "extra trees, labelled rows")
        ],
    ),
    Quote(
        "docs/explanation/limits.md",
        "at 5 % labels, and it is {}",
        [mean_of("field", None, "AutoRAD")],
    ),
    Quote(
        "docs/questions/how_sure.md",
        "contains the AUC on test rows in {} % of",
        [at(CHOOSING, "coverage", times=100)],
    ),
    Quote(
        "docs/questions/how_sure.md",
        "mean width is {} with two or three labelled anomalies, {} with four to nine, and {} with",
        [at(*WIDTH, count, "width") for count in ("2 to 3", "4 to 9", "10 or more")],
    ),
    Quote(
        "docs/howto/label.md",
        "it rises from {} with 10 labels to {} with 50 and {} with 100",
        [at(*SUGGESTED, "strategies", "suggested", "curve", place) for place in (0, 4, 9)],
    ),
    Quote(
        "docs/howto/label.md",
        "after {} and {} labels (two halves of the tables), and random rows after {} and {}",
        [
            at(TO_95, half, order, "labels to 95 %", "mean")
            for order in ("suggested", "random")
            for half in ("chosen on", "confirmed on")
        ],
    ),
    Quote(
        "docs/howto/novelty.md",
        "On {} real tables, with one kind of anomaly labelled, novelty ranks the other kinds with "
        "a mean AUC of {}, hardly better than an isolation forest ({})",
        [
            at(*UNSEEN, "one kind", "tables"),
            at(*UNSEEN, "one kind", "auc", "other kinds", "novelty", "mean"),
            at(*UNSEEN, "one kind", "auc", "other kinds", "isolation forest", "mean"),
        ],
    ),
    Quote(
        "docs/howto/novelty.md",
        "ranks better than an isolation forest: {} beside {}",
        [
            at(*UNSEEN, "normals", "auc", "all", name, "mean")
            for name in ("AutoRAD", "isolation forest")
        ],
    ),
    Quote(
        "docs/howto/onnx.md",
        "scores {} rows a second as a graph and {} in Python; one row alone takes {} ms rather "
        "than {} ms. The file has {} MB",
        [
            at(*GRAPH, "rows_per_second_graph"),
            at(*GRAPH, "rows_per_second_python"),
            at(*GRAPH, "ms_for_one_row_graph"),
            at(*GRAPH, "ms_for_one_row_python"),
            at(*GRAPH, "megabytes"),
        ],
    ),
    Quote(
        "docs/howto/reasons.md",
        "with 20 columns {} ms a row",
        [at("reasons.json", "20 columns", "ms_a_row")],
    ),
    Quote(
        "docs/howto/score_new.md",
        "{} times for each kind of output",
        [at("scoring/kills.json", "sqlite", "killed")],
    ),
    Quote(
        "docs/howto/score_new.md",
        "twice: {} (SQLite), {} (DuckDB), {} (folder)",
        [at("scoring/kills.json", kind, "rows_twice") for kind in ("sqlite", "duckdb", "folder")],
    ),
    Quote(
        "docs/howto/score_new.md",
        "after one more run: {}, {} and {}",
        [
            at("scoring/kills.json", kind, "rows_missing_at_the_end")
            for kind in ("sqlite", "duckdb", "folder")
        ],
    ),
    field_row("`riskad.AutoRAD`", "AutoRAD"),
    field_row("extra trees", "ExtraTrees"),
    field_row("CatBoost", "CatBoost"),
    field_row("random forest", "RandomForest"),
    field_row("logistic regression", "LogReg"),
    field_row("LightGBM", "LightGBM"),
    field_row("LightGBM +U", "LightGBM+U"),
    Quote(
        "README.md",
        "Means over {} tables of ADBench and {} splits",
        [
            lambda: len({r["dataset"] for r in records("field")}),
            most_trials,
        ],
    ),
    Quote(
        "docs/howto/any_table.md",
        "On {} columns of {} real files, labelled by hand, {} % of the kinds are right",
        [
            in_table("tables/README.md", r"\| (\d+) of (\d+) files \(`real", 1),
            in_table("tables/README.md", r"\| (\d+) of (\d+) files \(`real", 2),
            in_table("tables/README.md", r"`real.json`.*\((99.\d) %\)"),
        ],
    ),
    Quote(
        "docs/howto/any_table.md",
        "on {} columns of files that no rule had seen {} % were",
        [
            in_table("tables/README.md", r"`held_out.json`.* of (\d+) \((96.\d) %\)", 1),
            in_table("tables/README.md", r"`held_out.json`.* of (\d+) \((96.\d) %\)", 2),
        ],
    ),
    Quote(
        "docs/howto/groups_time.md",
        "only for their customer, the AUC is {} with it, and {} without",
        [
            at("tables/groups.json", "of", "compared", "mean"),
            at("tables/groups.json", "of", "plain", "mean"),
        ],
    ),
    Quote(
        "docs/howto/threshold.md",
        "Over {} simulated draws with",
        [at("decisions/p_values.json", "rates", 1, "draws")],
    ),
    Quote(
        "docs/howto/threshold.md",
        "{} % of normal rows have a p-value of at most 0.1, and at `fdr=0.2` {} % of",
        [
            lambda: 100 * p_values("small")[1],
            lambda: 100 * p_values("false"),
        ],
    ),
    Quote(
        "docs/howto/threshold.md",
        "mean Brier score of {}, beside {} for the sigmoid of the scores and {}",
        [at(*BRIER, "calibrated"), at(*BRIER, "sigmoid"), at(*BRIER, "min-max")],
    ),
    Quote(
        "docs/howto/label.md",
        "is {}, beside {} for random rows (difference {}, standard error {}) and {} for",
        [
            *(at(*SUGGESTED, "strategies", name, "area") for name in ("suggested", "random")),
            *(at(*LESS, key) for key in ("mean", "se")),
            at(*SUGGESTED, "strategies", "top score", "area"),
        ],
    ),
    Quote(
        "docs/howto/large.md",
        "10,000,000 rows of {} columns in {~} to {~} MB, 1,000,000 in {~} to {~}",
        [
            at("decisions/streaming.json", "columns"),
            *(peaks(10_000_000, choose) for choose in (min, max)),
            *(peaks(1_000_000, choose) for choose in (min, max)),
        ],
    ),
    Quote(
        "docs/explanation/autorad.md",
        "On 19 of the paper's sets with 5 % of the rows labelled it has a mean AUC of {} and a "
        "mean average precision of {} over {} splits; extra trees on the labelled rows, the best "
        "of {} other methods that were run as often, have {} and {}, CatBoost {} and {}.",
        [
            mean_of("field", None, "AutoRAD"),
            mean_of("field", None, "AutoRAD", "average_precision"),
            most_trials,
            lambda: len(others_run_as_often()),
            mean_of("field", None, "ExtraTrees"),
            mean_of("field", None, "ExtraTrees", "average_precision"),
            mean_of("field", None, "CatBoost"),
            mean_of("field", None, "CatBoost", "average_precision"),
        ],
    ),
    Quote(
        "README.md",
        "On the first {} splits the first TabPFN has {} and {}, and the second, with the weights "
        "of its regressor, {} and {}; `AutoRAD` has {} and {} there.",
        [
            trials_of_recent,
            *TABPFN_AND_AUTO[:2],
            mean_of("field", None, "TabPFN v2"),
            mean_of("field", None, "TabPFN v2", "average_precision"),
            *TABPFN_AND_AUTO[2:],
        ],
    ),
    Quote(
        "docs/explanation/autorad.md",
        "In the first {} splits, the first TabPFN comes nearest in AUC of {} others, with {} and "
        "{}; `AutoRAD` has {} and {} there.",
        [
            trials_of_recent,
            lambda: len(others_of_field()),
            *TABPFN_AND_AUTO,
        ],
    ),
    Quote(
        "docs/explanation/autorad.md",
        "among {} methods is the best",
        [lambda: len(field_methods())],
    ),
    Quote("docs/explanation/autorad.md", "A fit takes {} seconds in the median", [auto_seconds]),
    Quote(
        "docs/howto/stream.md", "about {} of the objective at most", [stream_largest("largest_gap")]
    ),
    Quote(
        "docs/howto/tune.md",
        "5 % of the rows labelled, the mean AUC is {} with Theorem 1's lambda, {} with the tight "
        "one and {} with",
        [at("lambda_rules.json", "auc", "5 %", rule) for rule in ("theorem", "tight", "cv")],
    ),
    Quote(
        "docs/explanation/detectors.md",
        "AUC of `BoostedRAD` is {}, beside {} of LightGBM and {} of extremely randomised trees",
        [
            at("trees.json", "BoostedRAD", "auc"),
            at("trees.json", "LightGBM, labelled rows", "auc"),
            at("trees.json", "extra trees, labelled rows", "auc"),
        ],
    ),
    Quote(
        "docs/explanation/detectors.md",
        '`ForestRAD` has {}, `ShallowRAD(lam="cv")` {}',
        [at("trees.json", "ForestRAD", "auc"), at("trees.json", "ShallowRAD, lam='cv'", "auc")],
    ),
    Quote(
        "docs/explanation/detectors.md",
        "{} becomes {} with boosting",
        [at("trees.json", "BoostedRAD, a=0", "auc"), at("trees.json", "BoostedRAD", "auc")],
    ),
    Quote(
        "docs/explanation/risk.md",
        "5 % of the rows labelled: {}, {} and {} (`python -m experiments run lambda-rules`)",
        [at("lambda_rules.json", "auc", "5 %", rule) for rule in ("theorem", "tight", "cv")],
    ),
    Quote(
        "docs/explanation/risk.md",
        "rows fit {} times faster than `StandardScaler` with `LogisticRegression`, with {} % of",
        [
            core("fit 1e6 x 50, modified_huber, lam=theorem"),
            lambda: 100 * core("modified_huber: peak extra memory")(),
        ],
    ),
    Quote(
        "docs/explanation/risk.md",
        "takes {} times as long as one product `X.T @ X`",
        [core("X.T @ X")],
    ),
    Quote(
        "docs/explanation/risk.md",
        "sparse rows fit {} to {~} times faster than `saga`",
        [
            core("sparse, modified_huber, lam=0.01"),
            core("sparse, logistic, lam=theorem"),
        ],
    ),
    Quote(
        "docs/explanation/risk.md",
        "scoring takes {} times as long as one product `X @ w`",
        [core("X @ w")],
    ),
    Quote(
        "docs/explanation/bounds.md",
        "were {} to {} times above the 95 % quantile",
        [at("theory/bounds.json", "summary", "spread", "tightness", place) for place in (0, 2)],
    ),
    Quote(
        "docs/howto/paper.md",
        "with modified Huber loss has a mean AUC of {} over the 19 sets at hand (published: {}) "
        "and reaches what was published, less two standard errors, on {} of them; PU learning has "
        "{}, the one-class SVM {}.",
        [
            mean_of("shallow", "main", "rad", **HUBER_CV),
            in_table("shallow/tables/main.md", M_HUBER, 2),
            in_table("shallow/tables/main.md", M_HUBER),
            mean_of("shallow", "main", "pu", **HUBER_CV),
            mean_of("shallow", "main", "ocsvm"),
        ],
    ),
    Quote(
        "docs/howto/paper.md",
        "in all {} cells of the paper's table, with a mean AUC of {} (published: {})",
        [
            in_table("deep/tables/images-prior.md", ALL_IMAGES),
            mean_of("deep", "images-prior", "rad"),
            in_table("deep/tables/images-prior.md", ALL_IMAGES, 3),
        ],
    ),
]

PARQUET, DASK, GPU = "scale/parquet.json", "scale/dask.json", "scale/gpu.json"
MODEL, GROWTH = "scale/model.json", "scale/growth.json"
PILES = range(4)


QUOTES += [
    Quote(
        "docs/explanation/scale.md",
        "`AutoRAD` has an AUC of {}, {}, {}, {}; {}, {}, {}, {}; and {}, {}, {}, {}. "
        "`BoostedRAD` moves by {}, {} and {}",
        [
            *(
                sampled(name, lambda values, place=place: values[place], "AutoRAD")
                for name in ("campaign", "magic.gamma", "mammography")
                for place in PILES
            ),
            *(sampled(name, spread) for name in ("campaign", "magic.gamma", "mammography")),
        ],
    ),
    Quote(
        "docs/explanation/scale.md",
        "Parquet files ({} GiB): peak resident memory | {} MiB | {} |",
        [
            at(PARQUET, "file_gib"),
            at(PARQUET, "fit", "peak_mib"),
            at(PARQUET, "targets", "peak_mib"),
        ],
    ),
    Quote(
        "docs/explanation/scale.md",
        "{} passes: time over that of reading the columns once per pass with pyarrow | {} ",
        [at(PARQUET, "fit", "passes"), at(PARQUET, "ratio_to_reading")],
    ),
    Quote(
        "docs/explanation/scale.md",
        "slope of time in n, log-log | {} | {} |",
        [at(GROWTH, "slope_in_n"), at(GROWTH, "targets", "slope_in_n")],
    ),
    Quote(
        "docs/explanation/scale.md",
        "over one process with two threads | {} (",
        [at(DASK, "ratio_to_memory")],
    ),
    Quote(
        "docs/explanation/scale.md",
        "largest difference of its coefficients, relative | {} | {} |",
        [
            at(DASK, "workers", 1, "largest_difference"),
            at(DASK, "targets", "largest_difference"),
        ],
    ),
    Quote(
        "docs/explanation/scale.md",
        "bandwidth of the passes over that of a copy | {} |",
        [at(GPU, "pass_over_copy")],
    ),
    Quote(
        "docs/explanation/scale.md",
        "the same for the whole fit, {} ms, in which rows are read {} times (see below) | {} |",
        [at(GPU, "milliseconds_of_fit"), at(GPU, "passes"), at(GPU, "fit_over_copy")],
    ),
    Quote(
        "docs/explanation/scale.md",
        "by row faster than the {} cores of its host | {~} times |",
        [at(GPU, "cores_of_host"), at(GPU, "times_the_host_by_row")],
    ),
    *(
        Quote(
            "docs/explanation/scale.md",
            f"| {rows:,} | {{}} | {{}} | {{}} |",
            [at(GROWTH, "fits", place, key) for key in ("seconds", "passes", "peak_mib")],
        )
        for place, rows in enumerate([10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7, 2 * 10**7])
    ),
    Quote(
        "docs/explanation/scale.md",
        "On two workers a fit takes {} s, on one {} s",
        [at(DASK, "workers", place, "seconds") for place in (1, 0)],
    ),
    Quote(
        "docs/explanation/scale.md",
        "value and gradient takes {} ms instead of {}, and a whole fit {} ms instead of {}; for "
        "200,000 x 500 a fit takes {} ms instead of {}.",
        [
            at("scale/kernels.json", "shallow", shape, what, way, "ms")
            for shape, what in (
                ("2000000 x 50", "value and gradient"),
                ("2000000 x 50", "fit"),
                ("200000 x 500", "fit"),
            )
            for way in ("eager", "kernels")
        ],
    ),
    Quote(
        "docs/explanation/scale.md",
        "Of the {} ms on the GPU, the median of 15 fits that took {} to {}, {} are passes",
        [
            at(GPU, "milliseconds_of_fit"),
            *(at(GPU, "milliseconds_of_fits", place) for place in (0, 1)),
            at(GPU, "milliseconds_of_passes", sum),
        ],
    ),
    *(
        Quote(
            "docs/explanation/scale.md",
            f"| {columns:,} | {{}} | {{}} |",
            [at("scale/shapes.json", "columns", place, key) for key in ("rows", "seconds")],
        )
        for place, columns in enumerate([10, 30, 100, 300, 1000, 2000])
    ),
    *(
        Quote(
            "docs/explanation/scale.md",
            f"| {density:g} | {{}} | {{}} |",
            [
                at("scale/shapes.json", "density", "fits", place, key)
                for key in ("stored", "seconds")
            ],
        )
        for place, density in enumerate([0.001, 0.003, 0.01, 0.03, 0.1])
    ),
    Quote(
        "docs/explanation/scale.md",
        "start = {} s, most of it the sample's own fit, and {~} ns per row and pass of 50 columns "
        "on two cores, that is B = {} GB/s",
        [
            at(MODEL, "parquet_seconds", "start"),
            at(MODEL, "parquet_seconds", "per_row_and_pass", times=1e9),
            at(MODEL, "parquet_gb_per_s", times=0.5),
        ],
    ),
    Quote(
        "docs/explanation/scale.md",
        "from noise ({} ms",
        [at(MODEL, "dask_seconds_per_round", times=1e3)],
    ),
    Quote(
        "docs/explanation/scale.md",
        "a pass takes {} s and the fit {} minutes: {} core hours",
        [
            at(MODEL, "plan", "seconds", times=1 / 5),
            at(MODEL, "plan", "seconds", times=1 / 60),
            at(MODEL, "plan", "core_hours"),
        ],
    ),
]

SETTING, EXAMPLE = "a setting, a budget of labels or a property", "compared in a test of its own"
ROUGH = "an order of magnitude, of which no record is kept"
OTHER_RUNS = "other runs of the same benchmark, of which no record is kept"
PLAN = "arithmetic with the figures above it"

# Figures that are not taken from results/, by the words around each, and what they are.
NOT_MEASURED = {
    "README.md": {
        "Python 3.11": SETTING,
        "(`1.234,50 €`, `79.8%`, `27.03.2025 18:14`, `ja`, `n/a`)": EXAMPLE,
        "5 % of the rows labelled": SETTING,
    },
    "docs/index.md": {"Python 3.11": SETTING},
    "docs/reference/words.md": {"a 95 % confidence interval": SETTING},
    "docs/explanation/autorad.md": {
        "labels are fewer: 1 % of the rows": SETTING,
        "5 % of the rows labelled": SETTING,
    },
    "docs/explanation/contamination.md": {
        "5 % of the rows labelled": SETTING,
    },
    "docs/explanation/detectors.md": {
        "5 % of the rows labelled": SETTING,
    },
    "docs/explanation/risk.md": {
        "5 % of the rows labelled": SETTING,
    },
    "docs/howto/any_table.md": {
        "`1,234.50 €`, `383,74`, `79.8%`, `12 kg`, `(5.00)`, `1e-3`": EXAMPLE,
        "`27.03.2025 18:14`, `Mar 27, 2025`, `6:14 PM`, `1h 20m`": EXAMPLE,
        "--kind paid=number:1.234,50`": EXAMPLE,
        "(at most 1 %) count as blank": SETTING,
    },
    "docs/howto/chosen_labels.md": {
        "the share of normal rows, is 0.8": SETTING,
        "9 % on average and 95 % of them between 1 % and 25 %, count as much as 18": SETTING,
    },
    "docs/howto/serve.md": {
        "1,234.50": EXAMPLE,
        "912.50": EXAMPLE,
        "status=200 ms=3.1": EXAMPLE,
        'quantile="0.95"': SETTING,
    },
    "docs/howto/drift.md": {
        "a false warning is 5 % at most": SETTING,  # tests/test_drift.py
        "`--fail-above 0.2`": EXAMPLE,
    },
    "docs/howto/images.md": {
        "its AUC is 0.96; an isolation forest has 0.35": EXAMPLE,  # tests/test_project.py
    },
    "docs/howto/label.md": {
        "reach 95 % of the AUC": SETTING,
    },
    "docs/howto/large.md": {
        "20 to 60 MB more": ROUGH,
    },
    "docs/howto/paper.md": {
        "Budgets are 1 %, 5 % and 10 % of the rows": SETTING,
    },
    "docs/howto/reasons.md": {
        "2 % of the largest": SETTING,
        "some 5 ms a row": ROUGH,
    },
    "docs/howto/refit.md": {
        "with a probability of 2.5 % at most": SETTING,  # half of what an interval of 95 % leaves
    },
    "docs/howto/schedule.md": {
        "`riskad drift --fail-above 0.2`": EXAMPLE,
        "a distance of more than 0.2": EXAMPLE,
        "at 0.2 at least a fifth of the rows": EXAMPLE,
        "begin with 0.1 or 0.2": EXAMPLE,
    },
    "docs/howto/threshold.md": {
        "at most 1 % of normal rows | 99 labelled normals for 1 %": SETTING,
        "20 % anomalies": SETTING,
    },
    "docs/howto/tune.md": {
        "`a = 0.1` and `prior = 0.8`": SETTING,
    },
    "docs/explanation/limits.md": {
        "5 % of the rows labelled": SETTING,
        "the 95 % interval": SETTING,
        "a mean AUC of 0.935 for `AutoRAD` at 5 % labels": SETTING,
    },
    "docs/project/deprecation.md": {"Before 1.0 a minor version (0.1, 0.2)": SETTING},
    "docs/questions/contamination.md": {"--anomaly-rate 0.03": SETTING},
    "docs/tutorials/csv.md": {
        "of which 6 % are fraud": SETTING,
        "`--anomaly-rate 0.06`": SETTING,
    },
    "docs/explanation/scale.md": {
        "32 MiB of": SETTING,
        "5 % labelled": SETTING,
        "two cores, 24 GiB": SETTING,
        "(1.1 and 1.8 in other runs)": OTHER_RUNS,
        "(0.91 in another run) | 1.6 |": OTHER_RUNS,
        "| 0.53 | 0.5 |": SETTING,
        "| 1.1 s | 32.6, 28.4 | 0.55, 0.64 | | 1.6 s | 34.1, 33.0 | 0.53, 0.55 |": OTHER_RUNS,
        "hosts that take 2 seconds and more": OTHER_RUNS,
        "had 0.39 to 0.46": OTHER_RUNS,
        "(lambda 0.01,": SETTING,
        "an empty round takes 50 ms": ROUGH,
        "reads it 5 times": PLAN,
        "Files must come at 0.4 GB/s": PLAN,
        "at 0.1 GB/s": PLAN,
        "some 30 ms, and loading": PLAN,
        "An empty round of 20 took 50 ms here, 2.5 ms each": ROUGH,
        "add 25 s to every pass": PLAN,
    },
}
DOCUMENTS = [
    "README.md",
    *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")),
]

# A figure that may be a result: with a decimal point, or with a unit behind it.
FIGURE = re.compile(
    r"(?<![\w./=:-])-?\d[\d,]*\.\d+(?![\w.]*[\w/])"
    r"|(?<![\w.,:])\d[\d,]*(?= (?:%|times|ms|s|seconds|minutes|MB|MiB|GiB|GB/s|ns)(?!\w))"
)


def text_of(document):
    """A document without code, its white space as single blanks."""
    text = (ROOT / document).read_text(encoding="utf-8")
    text = re.sub(r"^```(?s:.*?)^```$|^<!-- run(?s:.*?)^-->$|^    .*$", " ", text, flags=re.M)
    return re.sub(r"\s+", " ", text)


def as_number(quoted):
    if quoted in WORDS:
        return float(WORDS.index(quoted))
    return float(quoted.replace(",", ""))


def half_a_unit(quoted, rough):
    """Half of the last digit of a figure: by so much rounding may move it."""
    digits, _, power = quoted.replace(",", "").partition("e")
    if "." in digits:
        last = -len(digits.partition(".")[2])
    else:
        last = len(digits) - len(digits.rstrip("0")) if rough else 0
    return 0.5 * 10.0 ** (last + int(power or 0))


@pytest.mark.parametrize("quote", QUOTES, ids=str)
def test_figures_are_those_of_the_results(quote):
    found = list(re.finditer(quote.pattern, text_of(quote.document)))
    assert len(found) == 1, "the words of a quote are in its document once"
    quoted, values = found[0].groups(), [figure() for figure in quote.figures]
    assert len(quoted) == len(values) == len(quote.rough)
    for text, value, rough in zip(quoted, values, quote.rough, strict=True):
        # The results are rounded themselves, to 4 digits or more.
        allowed = 1.001 * half_a_unit(text, rough) + 1e-12
        assert abs(as_number(text) - value) <= allowed, f"{text} is quoted of {value}"


def test_rounding_as_quoted():
    assert half_a_unit("0.887", False) == 0.0005
    assert half_a_unit("1e-09", False) == 0.5e-9
    assert (half_a_unit("540", True), half_a_unit("540", False)) == (5, 0.5)
    assert (as_number("12,000"), as_number("six")) == (12_000, 6)


def uncovered(document, text, quotes):
    """The figures of a text that neither a quote nor NOT_MEASURED covers, with some words."""
    spans = [m.span() for q in quotes for m in re.finditer(q.pattern, text)]
    for words in NOT_MEASURED.get(document, ()):
        spans += [m.span() for m in re.finditer(re.escape(words), text)]
    for figure in FIGURE.finditer(text):
        start, end = figure.span()
        if not any(first <= start and end <= last for first, last in spans):
            yield text[max(0, start - 60) : end + 30]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_figure_is_left_out(document):
    quotes = [quote for quote in QUOTES if quote.document == document]
    assert list(uncovered(document, text_of(document), quotes)) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_not_measured_is_still_there(document):
    missing = [words for words in NOT_MEASURED.get(document, ()) if words not in text_of(document)]
    assert missing == []


def test_a_figure_without_an_entry_is_found():
    text = "On ten more sets the mean AUC is 0.951, 7 times as good (`results/core.json`)."
    assert len(list(uncovered("README.md", text, []))) == 2
