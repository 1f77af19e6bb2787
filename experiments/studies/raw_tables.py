"""Raw tables that are drawn, so that the truth about each row is known.

Each function takes a seed and returns a `RawTable`: the cells as a person would find them in a
file, all of them texts; which rows are anomalies; and the columns that somebody who knows the table
would make of it by hand. Anomalies are drawn with probabilities that depend on what the cells say,
by a rule that the docstring of each table states, so that no method can find all of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

Moments = Sequence[datetime.datetime]


@dataclass(frozen=True, eq=False)
class RawTable:
    """Cells as texts, which rows are anomalies, and columns made of the cells by hand.

    `labelled` is the share of training rows whose label is given; `many_levels` says whether a
    category with very many levels matters.
    """

    raw: pl.DataFrame
    anomalous: np.ndarray
    engineered: pl.DataFrame
    labelled: float = 0.1
    many_levels: bool = False


def make_table(
    raw: Mapping[str, Sequence[str | None]],
    anomalous: np.ndarray,
    by_hand: Mapping[str, Any],
    **about: Any,
) -> RawTable:
    """Put columns together: raw cells as a CSV file is read, those by hand as texts or floats."""
    texts = {name: pl.Series(list(cells), dtype=pl.String) for name, cells in raw.items()}
    engineered = {
        name: pl.Series(list(values), dtype=pl.String)
        if any(isinstance(value, str) for value in values)
        else pl.Series(np.asarray(values, dtype=np.float64), nan_to_null=True)
        for name, values in by_hand.items()
    }
    return RawTable(pl.DataFrame(texts), anomalous, pl.DataFrame(engineered), **about)


# --- cells ---------------------------------------------------------------------------------


def draw_anomalies(rng: np.random.Generator, risk: np.ndarray, rate: float) -> np.ndarray:
    """Draw anomalies with log-odds `risk` plus what makes their expected share `rate`."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = np.mean(1 / (1 + np.exp(-(risk + middle))))
        low, high = (middle, high) if share < rate else (low, middle)
    return rng.random(len(risk)) < 1 / (1 + np.exp(-(risk + low)))


def draw_moments(rng: np.random.Generator, n: int, days: float = 240) -> list[datetime.datetime]:
    """Draw moments in order, more of them by day than by night."""
    start = datetime.datetime(2025, 1, 7)
    day = np.sort(rng.integers(0, int(days), n))
    hour = np.clip(rng.normal(14, 4.5, n), 0, 23.98)
    hour = np.where(rng.random(n) < 0.12, rng.uniform(0, 23.98, n), hour)
    minutes = (day * 1440 + hour * 60).astype(int)
    return [start + datetime.timedelta(minutes=int(minute)) for minute in minutes]


def draw_levels(
    rng: np.random.Generator, n: int, size: int, stem: str
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Levels of very different shares, and how risky each is: name by row, place, risk."""
    share = rng.dirichlet(np.full(size, 0.6))
    place = rng.choice(size, n, p=share)
    names = np.array([f"{stem} {number:03d}" for number in rng.permutation(size) + 1])
    risk = np.where(rng.random(size) < 0.12, rng.normal(2.5, 0.6, size), rng.normal(0, 0.4, size))
    return names[place].tolist(), place, risk[place]


def pick(rng: np.random.Generator, n: int, *words: str) -> list[str]:
    """Draw one of some words for each row."""
    return rng.choice(np.array(words), n).tolist()


def later(moments: Moments, days: np.ndarray) -> list[datetime.datetime]:
    """Moments so many days later."""
    return [
        moment + datetime.timedelta(days=int(wait))
        for moment, wait in zip(moments, days, strict=True)
    ]


def write_moments(moments: Moments, form: str) -> list[str]:
    """Write moments in a form of `strftime`."""
    return [moment.strftime(form) for moment in moments]


def write_numbers(
    values: np.ndarray, form: str, before: str = "", after: str = "", marks: str = ",."
) -> list[str]:
    """Write numbers with a sign or a unit, and these marks for thousands and decimals."""
    swap = str.maketrans(",.", marks)
    return [f"{before}{format(value, form).translate(swap)}{after}" for value in values]


def clock_parts(moments: Moments) -> dict[str, np.ndarray]:
    """Hour, weekday and day of a moment: what anybody takes from it."""
    return {
        "hour": np.array([moment.hour + moment.minute / 60 for moment in moments]),
        "weekday": np.array([float(moment.weekday()) for moment in moments]),
        "day": np.array([(moment - moments[0]).days for moment in moments], dtype=float),
    }


def by_night(hour: np.ndarray) -> np.ndarray:
    """Return 1 before six in the morning, else 0."""
    return (hour < 6).astype(float)


# --- tables --------------------------------------------------------------------------------


def payments(seed: int) -> RawTable:
    """Payments exported from a spreadsheet: by night, large, of a few shops, with high discounts.

    Written as `27.03.2025 18:14`, `1,234.50 €`, `79.8%`, with 300 shops; half of the rows are a
    table of 6,000 payments with some 40 labelled frauds.
    """
    rng, n = np.random.default_rng(seed), 12_000
    when = draw_moments(rng, n)
    clock = clock_parts(when)
    amount = np.exp(rng.normal(3.6, 1.2, n))
    discount = rng.beta(1.2, 3, n) * 100
    shop, _, shop_risk = draw_levels(rng, n, 300, "Shop")
    channel = pick(rng, n, "web", "store", "phone")
    risk = (
        2.2 * by_night(clock["hour"]) + 0.9 * (np.log(amount) - 3.6) + 0.03 * discount + shop_risk
    )
    raw = {
        "number": [f"P-{100_000 + i}" for i in range(n)],
        "when": write_moments(when, "%d.%m.%Y %H:%M"),
        "amount": write_numbers(amount, ",.2f", after=" €"),
        "discount": write_numbers(discount, ".1f", after="%"),
        "shop": shop,
        "channel": channel,
    }
    by_hand = {**clock, "amount": amount, "discount": discount, "shop": shop, "channel": channel}
    truth = draw_anomalies(rng, risk, 0.05)
    return make_table(raw, truth, by_hand, labelled=0.125, many_levels=True)


def german(seed: int) -> RawTable:
    """A German export: one measured value, `383,74`, tells nearly all."""
    rng, n = np.random.default_rng(seed), 5_000
    value = rng.normal(380, 40, n)
    other = np.exp(rng.normal(6.5, 1.4, n))
    when = draw_moments(rng, n)
    site = pick(rng, n, "Köln", "Essen", "Ulm", "Gießen")
    truth = draw_anomalies(rng, 0.35 * (np.abs(value - 380) - 90), 0.06)
    raw = {
        "Datum": write_moments(when, "%d.%m.%Y"),
        "Messwert": write_numbers(value, ",.2f", marks=".,"),
        "Umsatz": write_numbers(other, ",.2f", marks=".,"),
        "Werk": site,
        "geprüft": pick(rng, n, "ja", "nein"),
    }
    by_hand = {"value": value, "other": other, "site": site, "day": clock_parts(when)["day"]}
    return make_table(raw, truth, by_hand)


def cards(seed: int) -> RawTable:
    """Card payments: `$41.39`, 180 merchants, of which some are risky, abroad and by night."""
    rng, n = np.random.default_rng(seed), 12_000
    when = draw_moments(rng, n)
    clock = clock_parts(when)
    amount = np.exp(rng.normal(3.4, 1.0, n))
    merchant, _, merchant_risk = draw_levels(rng, n, 180, "Merchant")
    country = rng.choice(["US", "CA", "MX", "BR", "RO"], n, p=[0.8, 0.08, 0.06, 0.04, 0.02])
    present = rng.choice(["yes", "no"], n, p=[0.7, 0.3])
    risk = (
        1.3 * merchant_risk
        + 1.2 * (country != "US")
        + 1.0 * (present == "no")
        + 1.5 * by_night(clock["hour"])
        + 0.8 * np.abs(np.log(amount) - 3.4)
    )
    raw = {
        "transaction": [f"{value:08x}" for value in rng.choice(2**31, n, replace=False)],
        "time": write_moments(when, "%m/%d/%Y %I:%M %p"),
        "amount": write_numbers(amount, ",.2f", before="$"),
        "merchant": merchant,
        "country": country.tolist(),
        "card present": present.tolist(),
    }
    by_hand = clock | {"amount": amount, "merchant": merchant, "country": country}
    by_hand["present"] = (present == "yes").astype(float)
    truth = draw_anomalies(rng, 1.4 * risk, 0.04)
    return make_table(raw, truth, by_hand, labelled=0.2, many_levels=True)


def subscriptions(seed: int) -> RawTable:
    """Subscriptions that end soon after they began, as against their plan: two dates tell."""
    rng, n = np.random.default_rng(seed), 6_000
    start = draw_moments(rng, n, days=700)
    plan = rng.choice(["monthly", "yearly", "trial"], n, p=[0.5, 0.3, 0.2])
    usual = np.select([plan == "monthly", plan == "yearly"], [120.0, 365.0], 14.0)
    days = np.maximum(1, np.round(usual * np.exp(rng.normal(0, 0.7, n))))
    price = np.select([plan == "monthly", plan == "yearly"], [9.99, 89.0], 0.0)
    price = price + rng.choice([0.0, 2.0, 5.0], n)
    source = pick(rng, n, "ad", "friend", "search", "shop")
    raw = {
        "customer": [f"C{10_000 + i}" for i in range(n)],
        "started": write_moments(start, "%Y-%m-%d"),
        "ended": write_moments(later(start, days), "%d-%b-%Y"),
        "plan": plan.tolist(),
        "price": write_numbers(price, ".2f", before="EUR "),
        "source": source,
    }
    by_hand = {"days": days, "plan": plan, "price": price, "source": source}
    by_hand["begun"] = clock_parts(start)["day"]
    return make_table(raw, draw_anomalies(rng, 2.5 * np.log(usual / days), 0.06), by_hand)


def sensors(seed: int) -> RawTable:
    """A log of machines, with units: hot for the load it bears, or pressure and flow apart."""
    rng, n = np.random.default_rng(seed), 8_000
    when = draw_moments(rng, n, days=90)
    load = rng.beta(2, 2, n)
    heat = 40 + 50 * load + rng.normal(0, 5, n)
    pressure = 2 + 3 * load + rng.normal(0, 0.3, n)
    odd = rng.random(n) < 0.1
    heat = heat + odd * rng.normal(0, 16, n)
    pressure = pressure + (rng.random(n) < 0.1) * rng.normal(0, 1.2, n)
    machine, _, machine_risk = draw_levels(rng, n, 40, "M")
    status = pick(rng, n, "OK", "OK", "CHECK")
    risk = (
        0.3 * np.abs(heat - 40 - 50 * load)
        + 4.0 * np.abs(pressure - 2 - 3 * load)
        + 0.5 * machine_risk
    )
    raw = {
        "timestamp": write_moments(when, "%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine,
        "temperature": write_numbers(heat, ".1f", after=" °C"),
        "pressure": write_numbers(pressure, ".2f", after=" bar"),
        "load": write_numbers(100 * load, ".0f", after=" %"),
        "status": status,
    }
    by_hand = clock_parts(when) | {"machine": machine, "temperature": heat, "pressure": pressure}
    by_hand |= {"load": 100 * load, "status": status}
    return make_table(raw, draw_anomalies(rng, risk, 0.05), by_hand)


_PLAIN = (
    "hello", "please", "my", "order", "has", "not", "arrived", "where", "is", "the", "invoice",
    "could", "you", "send", "it", "again", "thank", "size", "colour", "of", "shirt", "wrong",
)  # fmt: skip
_ODD = ("urgent", "voucher", "transfer", "account", "blocked", "lawyer", "refund", "immediately")


def _ticket(rng: np.random.Generator, share: float) -> str:
    size = int(rng.integers(6, 22))
    odd, plain = rng.integers(0, len(_ODD), size), rng.integers(0, len(_PLAIN), size)
    strange = rng.random(size) < share
    words = [
        _ODD[a] if is_odd else _PLAIN[b] for a, b, is_odd in zip(odd, plain, strange, strict=True)
    ]
    return " ".join(words).capitalize() + ("!" if rng.random() < share * 2 else ".")


def tickets(seed: int) -> RawTable:
    """Messages to a help desk: what they say tells which are attempts at fraud."""
    rng, n = np.random.default_rng(seed), 6_000
    share = np.where(rng.random(n) < 0.15, rng.uniform(0.1, 0.5, n), rng.uniform(0, 0.08, n))
    text = [_ticket(rng, part) for part in share]
    odd = np.array(
        [sum(word in _ODD for word in line.lower().strip("!.").split()) for line in text]
    )
    words = np.array([len(line.split()) for line in text], dtype=float)
    when = draw_moments(rng, n)
    channel = pick(rng, n, "mail", "chat", "form")
    truth = draw_anomalies(rng, 14.0 * odd / words - 1.0, 0.08)
    raw = {
        "ticket": [f"#{5_000 + i}" for i in range(n)],
        "received": write_moments(when, "%d/%m/%Y %H:%M"),
        "message": text,
        "channel": channel,
        "answered": pick(rng, n, "yes", "no"),
    }
    by_hand = clock_parts(when) | {"odd words": odd.astype(float), "words": words}
    by_hand |= {"called out": [float(line.endswith("!")) for line in text], "channel": channel}
    return make_table(raw, truth, by_hand)


def orders(seed: int) -> RawTable:
    """Orders with gaps that speak: no telephone number, a first order, large."""
    rng, n = np.random.default_rng(seed), 8_000
    when = draw_moments(rng, n)
    value = np.exp(rng.normal(4.2, 0.9, n))
    age = np.where(rng.random(n) < 0.25, np.nan, np.round(rng.normal(45, 14, n)))
    phone = rng.random(n) < 0.75
    items = rng.poisson(2, n) + 1.0
    country = pick(rng, n, "AT", "DE", "CH", "IT")
    risk = 2.0 * ~phone + 1.4 * np.isnan(age) + 0.8 * (np.log(value) - 4.2) - 0.2 * items
    number = rng.integers(1_000_000, 9_999_999, n)
    gap = rng.choice(["n/a", "-", ""], n)
    raw = {
        "Bestellung": [f"B{20_000 + i}" for i in range(n)],
        "Datum": write_moments(when, "%d.%m.%y"),
        "Wert": write_numbers(value, ",.2f", after=" EUR", marks=".,"),
        "Telefon": [f"+43 {code}" if phone[i] else None for i, code in enumerate(number)],
        "Alter": [
            str(gap[i]) if np.isnan(years) else f"{years:.0f}" for i, years in enumerate(age)
        ],
        "Artikel": write_numbers(items, ".0f"),
        "Land": country,
    }
    by_hand = {"day": clock_parts(when)["day"], "value": value, "phone": phone.astype(float)}
    by_hand |= {"age": age, "items": items, "country": country}
    return make_table(raw, draw_anomalies(rng, risk, 0.06), by_hand)


_AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0) Firefox/139.0",
    "Mozilla/5.0 (Macintosh) Safari/605.1.15",
    "Mozilla/5.0 (Linux; Android 15) Chrome/137.0 Mobile",
    "python-requests/2.32",
    "curl/8.9.1",
)


def weblogs(seed: int) -> RawTable:
    """Requests to a web server: scripts, rare pages, errors and many bytes, of some addresses."""
    rng, n = np.random.default_rng(seed), 10_000
    when = draw_moments(rng, n, days=30)
    page, _, page_risk = draw_levels(rng, n, 220, "/page")
    page = [name.replace(" ", "/") for name in page]
    _, place, address_risk = draw_levels(rng, n, 400, "10")
    address = [f"10.0.{number // 250}.{number % 250 + 1}" for number in place]
    agent = rng.choice(len(_AGENTS), n, p=[0.4, 0.25, 0.25, 0.06, 0.04])
    status = rng.choice(["200", "304", "404", "500"], n, p=[0.8, 0.1, 0.08, 0.02])
    size = np.exp(rng.normal(3.0, 1.1, n))
    risk = (
        page_risk
        + address_risk
        + 1.6 * (agent >= 3)
        + 1.0 * (status == "404")
        + 0.6 * (np.log(size) - 3.0)
    )
    shared = {"client": address, "page": page, "status": status.tolist()}
    agents = [_AGENTS[i] for i in agent]
    raw = {"time": write_moments(when, "%d/%b/%Y %H:%M:%S"), **shared}
    raw |= {"size": write_numbers(size, ".1f", after=" kB"), "agent": agents}
    by_hand = clock_parts(when) | shared | {"size": size, "agent": agents}
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return make_table(raw, truth, by_hand, labelled=0.2, many_levels=True)


def claims(seed: int) -> RawTable:
    """Insurance claims: reported late, large for the car's age, by some of 250 workshops."""
    rng, n = np.random.default_rng(seed), 10_000
    loss = draw_moments(rng, n, days=500)
    delay = np.round(rng.exponential(9, n))
    age = np.round(rng.uniform(0, 15, n))
    amount = np.exp(8.2 - 0.09 * age + rng.normal(0, 0.6, n))
    balance = rng.normal(0, 400, n)
    workshop, _, workshop_risk = draw_levels(rng, n, 250, "Workshop")
    police = rng.choice(["Y", "N"], n, p=[0.4, 0.6])
    excess = np.log(amount) - 8.2 + 0.09 * age
    risk = 0.06 * delay + 1.6 * excess + workshop_risk + 0.9 * (police == "N")
    raw = {
        "claim no": [f"{2025}-{i:06d}" for i in rng.permutation(n)],
        "date of loss": write_moments(loss, "%B %d, %Y"),
        "reported": write_moments(later(loss, delay), "%m/%d/%Y"),
        "claimed": write_numbers(amount, ",.0f", before="$"),
        "balance": [f"({-value:.2f})" if value < 0 else f"{value:.2f}" for value in balance],
        "car age": write_numbers(age, ".0f", after=" years"),
        "workshop": workshop,
        "police report": police.tolist(),
    }
    by_hand = {"delay": delay, "month": [float(day.month) for day in loss], "amount": amount}
    by_hand |= {"balance": balance, "age": age, "workshop": workshop}
    by_hand["police"] = (police == "Y").astype(float)
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return make_table(raw, truth, by_hand, labelled=0.2, many_levels=True)


def invoices(seed: int) -> RawTable:
    """Swiss invoices of 200 suppliers: short terms, round amounts, the wrong rate of tax."""
    rng, n = np.random.default_rng(seed), 10_000
    dated = draw_moments(rng, n, days=350)
    term = rng.choice([10.0, 30.0, 60.0], n, p=[0.15, 0.7, 0.15])
    amount = np.exp(rng.normal(7.0, 1.1, n))
    rounded = rng.random(n) < 0.12
    amount = np.where(rounded, np.ceil(amount / 100) * 100, amount)
    tax = rng.choice([8.1, 2.6, 0.0], n, p=[0.75, 0.17, 0.08])
    supplier, _, supplier_risk = draw_levels(rng, n, 200, "Lieferant")
    risk = 1.5 * (term == 10) + 1.2 * (tax == 0) + 1.3 * supplier_risk + 0.5 * np.log(amount)
    raw = {
        "Rechnung": [f"R{i:05d}" for i in rng.permutation(n)],
        "Datum": write_moments(dated, "%d.%m.%Y"),
        "fällig": write_moments(later(dated, term), "%d.%m.%Y"),
        "Betrag": write_numbers(amount, ",.2f", after=" CHF", marks="'."),
        "MWST": write_numbers(tax, ".1f", after="%"),
        "Lieferant": supplier,
    }
    by_hand = {"term": term, "weekday": clock_parts(dated)["weekday"], "amount": amount}
    by_hand |= {"tax": tax, "supplier": supplier}
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return make_table(raw, truth, by_hand, labelled=0.2, many_levels=True)


def shipments(seed: int) -> RawTable:
    """Parcels on their way: slow for the distance or light for their size, from some depots."""
    rng, n = np.random.default_rng(seed), 8_000
    sent = draw_moments(rng, n, days=120)
    distance = rng.gamma(2, 150, n)
    hours = 2 + distance / 60 * np.exp(rng.normal(0, 0.35, n))
    volume = np.exp(rng.normal(2.5, 0.7, n))
    weight = 0.4 * volume * np.exp(rng.normal(0, 0.5, n))
    depot, _, depot_risk = draw_levels(rng, n, 80, "Depot")
    express = pick(rng, n, "true", "false")
    slow, light = np.log((hours - 2) / distance * 60), -np.log(weight / volume / 0.4)
    risk = 4.0 * slow + 1.5 * light + 0.8 * depot_risk
    raw = {
        "sent": write_moments(sent, "%Y-%m-%d %H:%M"),
        "distance": write_numbers(distance, ".0f", after=" km"),
        "travelled": [f"{int(value)}h {int(60 * (value % 1))}m" for value in hours],
        "weight": write_numbers(weight, ".2f", after=" kg"),
        "volume": write_numbers(volume, ".1f", after=" l"),
        "depot": depot,
        "express": express,
    }
    by_hand = clock_parts(sent) | {"distance": distance, "hours": hours, "weight": weight}
    by_hand |= {"volume": volume, "depot": depot, "express": [word == "true" for word in express]}
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return make_table(raw, truth, by_hand, labelled=0.2, many_levels=True)


DRAWN: dict[str, Callable[[int], RawTable]] = {
    table.__name__: table
    for table in (
        *(payments, german, cards, subscriptions, sensors, tickets),
        *(orders, weblogs, claims, invoices, shipments),
    )
}
"""Tables that are drawn, by name."""
