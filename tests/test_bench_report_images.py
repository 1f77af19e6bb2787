import csv
import io
import json
import math
import random
import xml.etree.ElementTree as ET
from itertools import product

import pytest

from riskad.bench.images import (
    AS,
    DETECTORS,
    LABELLED,
    NNPU,
    PRIORS,
    RADS,
    RATES,
    SAD,
    Detector,
    Setup,
    Study,
    best,
    claims,
    image_reach,
    prior_cells,
    win,
)
from riskad.bench.images_tables import images_paper_tables, images_tables
from riskad.bench.paper import IMAGE_SETS, published
from riskad.bench.render import csv_text, latex_text, markdown_text, write_report
from riskad.bench.summary import Estimate, summarise

SQUARE, SIGMOID, LOGISTIC, HUBER = RADS


def record(
    auc=0.9, trial=0, *, experiment="images", dataset="MNIST", detector=LOGISTIC, rate=0.1, **more
):
    """One trial; names that no record has are settings."""
    settings = {"learning_rate": 0.001}
    if detector.method == "rad":
        settings |= {"loss": detector.loss, "risk": "nnrad", "a": 0.1, "prior": 0.8}
    known = ("labelled", "status", "reason", "versions")
    row = {
        "experiment": experiment,
        "dataset": dataset,
        "method": detector.method,
        "estimator": "riskad.Deep",
        "settings": settings | {key: more[key] for key in more if key not in known},
        "trial": trial,
        "root": 0,
        "anomaly_rate": rate,
        "labelled": 0.05,
        "normal_class": trial % 10,
        "auc": auc,
        "average_precision": auc,
        "roc": [(i / 25) ** (2 * max(0.0, 1 / auc - 1)) for i in range(26)],
        "fit_seconds": 0.1,
        "status": "ok",
        "versions": "riskad 0.1",
    }
    return row | {key: more[key] for key in more if key in known}


def failed(**more):
    row = record(status="failed", reason="out of memory", **more)
    return {key: row[key] for key in row if key not in ("auc", "average_precision", "roc")}


def as_claimed(dataset, rate, labelled, detector):
    """A mean AUC with which everything that the paper claims holds."""
    mean = {"MNIST": 0.85, "F-MNIST": 0.86, "CIFAR-10": 0.7}[dataset] + 0.2 * rate + 0.2 * labelled
    mean += {SQUARE: -0.004, LOGISTIC: 0.004}.get(detector, 0)
    if detector.method == "rad":
        return mean
    lead = {
        "MNIST": -0.03 + 0.1 * rate + 0.01 * labelled,
        "F-MNIST": 0.01,
        "CIFAR-10": 0.005 + 0.3 * rate,
    }[dataset]
    return mean - lead - (0.05 if detector == NNPU and dataset == "MNIST" else 0)


def detector_rows(mean=as_claimed, trials=4, detectors=DETECTORS, noise=0.002):
    """The experiment "images": trials differ together, and each cell a little on its own."""
    rng = random.Random(0)
    return [
        record(
            mean(dataset, rate, labelled, detector) + 0.02 * (trial % 2) + rng.gauss(0, noise),
            trial,
            dataset=dataset,
            detector=detector,
            rate=rate,
            labelled=labelled,
        )
        for dataset, rate, labelled in product(IMAGE_SETS, RATES, LABELLED)
        for detector in detectors
        for trial in range(trials)
    ]


def prior_rows(above=0.001, trials=2):
    """The experiment "images-prior": each AUC is the published one and a little."""
    return [
        record(
            published("images-prior", dataset, "rad", settings, rate).mean + above + 0.002 * trial,
            trial,
            experiment="images-prior",
            dataset=dataset,
            detector=detector,
            rate=rate,
            prior=prior,
        )
        for dataset, rate, detector, prior in product(IMAGE_SETS, RATES, RADS, PRIORS)
        for settings in [{"loss": detector.loss, "prior": prior}]
        for trial in range(trials)
    ]


def a_rows(slope=-0.01, trials=3):
    """The experiment "images-a": AUC falls with a on CIFAR-10, and stays on the others."""
    rng = random.Random(1)
    return [
        record(
            0.8 + slope * a * (dataset == "CIFAR-10") + rng.gauss(0, 0.0005),
            trial,
            experiment="images-a",
            dataset=dataset,
            detector=detector,
            rate=rate,
            a=a,
        )
        for dataset, rate, detector, a in product(IMAGE_SETS, RATES, RADS, AS)
        for trial in range(trials)
    ]


def all_rows():
    return [*detector_rows(), *prior_rows(), *a_rows()]
