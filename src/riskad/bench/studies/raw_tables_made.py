"""Raw tables that are drawn, so that the truth about each row is known.

Each function is given a seed and returns a `RawTable`: the cells as a person would find them in a
file, all of them texts; which rows are anomalies; and the columns that somebody who knows the table
would make of it by hand. Anomalies are drawn with probabilities that depend on what the cells say,
by a rule of each table that its docstring tells, so that no method can find all of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import numpy as np

from riskad.bench.studies.raw_tables_cells import (
    RawTable,
    as_frame,
    as_texts,
    by_night,
    clock_parts,
    draw_anomalies,
    draw_levels,
    draw_moments,
    dress,
    pick,
    write_moments,
    write_numbers,
)

__all__ = ["MADE"]


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
        "amount": dress("", write_numbers(amount, ",", "."), " €"),
        "discount": [f"{value:.1f}%" for value in discount],
        "shop": shop,
        "channel": channel,
    }
    by_hand = {**clock, "amount": amount, "discount": discount, "shop": shop, "channel": channel}
    truth = draw_anomalies(rng, risk, 0.05)
    return RawTable(as_texts(raw), truth, as_frame(by_hand), labelled=0.125, many_levels=True)


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
        "Messwert": write_numbers(value, ".", ","),
        "Umsatz": write_numbers(other, ".", ","),
        "Werk": site,
        "geprüft": pick(rng, n, "ja", "nein"),
    }
    by_hand = {"value": value, "other": other, "site": site, "day": clock_parts(when)["day"]}
    return RawTable(as_texts(raw), truth, as_frame(by_hand))


def cards(seed: int) -> RawTable:
    """Card payments: `$41.39`, 180 merchants, of which some are risky, abroad and by night."""
    rng, n = np.random.default_rng(seed), 12_000
    when = draw_moments(rng, n)
    clock = clock_parts(when)
    amount = np.exp(rng.normal(3.4, 1.0, n))
    merchant, _, merchant_risk = draw_levels(rng, n, 180, "Merchant")
    country = rng.choice(["US", "CA", "MX", "BR", "RO"], n, p=[0.8, 0.08, 0.06, 0.04, 0.02])
    abroad = (country != "US").astype(float)
    present = rng.choice(["yes", "no"], n, p=[0.7, 0.3])
    risk = (
        1.3 * merchant_risk
        + 1.2 * abroad
        + 1.0 * (present == "no")
        + 1.5 * by_night(clock["hour"])
        + 0.8 * np.abs(np.log(amount) - 3.4)
    )
    raw = {
        "transaction": [f"{value:08x}" for value in rng.choice(2**31, n, replace=False)],
        "time": write_moments(when, "%m/%d/%Y %I:%M %p"),
        "amount": dress("$", write_numbers(amount, ",", "."), ""),
        "merchant": merchant,
        "country": country.tolist(),
        "card present": present.tolist(),
    }
    by_hand = {
        **clock,
        "amount": amount,
        "merchant": merchant,
        "country": country,
        "present": (present == "yes").astype(float),
    }
    return RawTable(
        as_texts(raw),
        draw_anomalies(rng, 1.4 * risk, 0.04),
        as_frame(by_hand),
        labelled=0.2,
        many_levels=True,
    )


def subscriptions(seed: int) -> RawTable:
    """Subscriptions that end soon after they began, as against their plan: two dates tell."""
    rng, n = np.random.default_rng(seed), 6_000
    start = draw_moments(rng, n, days=700)
    plan = rng.choice(["monthly", "yearly", "trial"], n, p=[0.5, 0.3, 0.2])
    usual = np.select([plan == "monthly", plan == "yearly"], [120.0, 365.0], 14.0)
    days = np.maximum(1, np.round(usual * np.exp(rng.normal(0, 0.7, n))))
    price = np.select([plan == "monthly", plan == "yearly"], [9.99, 89.0], 0.0)
    price = price + rng.choice([0.0, 2.0, 5.0], n)
    end = [
        moment + datetime.timedelta(days=int(day)) for moment, day in zip(start, days, strict=True)
    ]
    risk = 2.5 * (np.log(usual / days)) - 0.5
    raw = {
        "customer": [f"C{10_000 + i}" for i in range(n)],
        "started": write_moments(start, "%Y-%m-%d"),
        "ended": write_moments(end, "%d-%b-%Y"),
        "plan": plan.tolist(),
        "price": [f"EUR {value:.2f}" for value in price],
        "source": pick(rng, n, "ad", "friend", "search", "shop"),
    }
    by_hand = {
        "days": days,
        "plan": plan,
        "price": price,
        "source": raw["source"],
        "begun": clock_parts(start)["day"],
    }
    return RawTable(as_texts(raw), draw_anomalies(rng, risk, 0.06), as_frame(by_hand))


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
    risk = (
        0.3 * np.abs(heat - 40 - 50 * load)
        + 4.0 * np.abs(pressure - 2 - 3 * load)
        + 0.5 * machine_risk
    )
    raw = {
        "timestamp": write_moments(when, "%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine,
        "temperature": [f"{value:.1f} °C" for value in heat],
        "pressure": [f"{value:.2f} bar" for value in pressure],
        "load": [f"{100 * value:.0f} %" for value in load],
        "status": pick(rng, n, "OK", "OK", "CHECK"),
    }
    by_hand = {
        **clock_parts(when),
        "machine": machine,
        "temperature": heat,
        "pressure": pressure,
        "load": 100 * load,
        "status": raw["status"],
    }
    return RawTable(as_texts(raw), draw_anomalies(rng, risk, 0.05), as_frame(by_hand))


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
    by_hand = {
        **clock_parts(when),
        "odd words": odd.astype(float),
        "words": words,
        "called out": [float(line.endswith("!")) for line in text],
        "channel": channel,
    }
    return RawTable(as_texts(raw), truth, as_frame(by_hand))


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
    raw: dict[str, list[str | None]] = {
        "Bestellung": [f"B{20_000 + i}" for i in range(n)],
        "Datum": [*write_moments(when, "%d.%m.%y")],
        "Wert": [*dress("", write_numbers(value, ".", ","), " EUR")],
        "Telefon": [
            f"+43 {code}" if has else None for code, has in zip(number, phone, strict=True)
        ],
        "Alter": [
            str(word) if np.isnan(years) else f"{years:.0f}"
            for years, word in zip(age, gap, strict=True)
        ],
        "Artikel": [f"{value:.0f}" for value in items],
        "Land": [*country],
    }
    by_hand = {
        "day": clock_parts(when)["day"],
        "value": value,
        "phone": phone.astype(float),
        "age": age,
        "items": items,
        "country": country,
    }
    return RawTable(as_texts(raw), draw_anomalies(rng, risk, 0.06), as_frame(by_hand))


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
    address, place, address_risk = draw_levels(rng, n, 400, "10")
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
    raw = {
        "time": write_moments(when, "%d/%b/%Y %H:%M:%S"),
        "client": address,
        "page": page,
        "status": status.tolist(),
        "size": [f"{value:.1f} kB" for value in size],
        "agent": [_AGENTS[i] for i in agent],
    }
    by_hand = {
        **clock_parts(when),
        "client": address,
        "page": page,
        "status": status,
        "size": size,
        "agent": raw["agent"],
    }
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return RawTable(as_texts(raw), truth, as_frame(by_hand), labelled=0.2, many_levels=True)


def claims(seed: int) -> RawTable:
    """Insurance claims: reported late, large for the car's age, by some of 250 workshops."""
    rng, n = np.random.default_rng(seed), 10_000
    loss = draw_moments(rng, n, days=500)
    delay = np.round(rng.exponential(9, n))
    told = [day + datetime.timedelta(days=int(wait)) for day, wait in zip(loss, delay, strict=True)]
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
        "reported": write_moments(told, "%m/%d/%Y"),
        "claimed": dress("$", write_numbers(amount, ",", ".", 0), ""),
        "balance": [f"({-value:.2f})" if value < 0 else f"{value:.2f}" for value in balance],
        "car age": [f"{value:.0f} years" for value in age],
        "workshop": workshop,
        "police report": police.tolist(),
    }
    by_hand = {
        "delay": delay,
        "month": np.array([float(day.month) for day in loss]),
        "amount": amount,
        "balance": balance,
        "age": age,
        "workshop": workshop,
        "police": (police == "Y").astype(float),
    }
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return RawTable(as_texts(raw), truth, as_frame(by_hand), labelled=0.2, many_levels=True)


def invoices(seed: int) -> RawTable:
    """Swiss invoices of 200 suppliers: short terms, round amounts, the wrong rate of tax."""
    rng, n = np.random.default_rng(seed), 10_000
    dated = draw_moments(rng, n, days=350)
    term = rng.choice([10.0, 30.0, 60.0], n, p=[0.15, 0.7, 0.15])
    due = [day + datetime.timedelta(days=int(days)) for day, days in zip(dated, term, strict=True)]
    amount = np.exp(rng.normal(7.0, 1.1, n))
    rounded = rng.random(n) < 0.12
    amount = np.where(rounded, np.ceil(amount / 100) * 100, amount)
    tax = rng.choice([8.1, 2.6, 0.0], n, p=[0.75, 0.17, 0.08])
    supplier, _, supplier_risk = draw_levels(rng, n, 200, "Lieferant")
    risk = 1.5 * (term == 10) + 1.2 * (tax == 0) + 1.3 * supplier_risk + 0.5 * np.log(amount)
    raw = {
        "Rechnung": [f"R{i:05d}" for i in rng.permutation(n)],
        "Datum": write_moments(dated, "%d.%m.%Y"),
        "fällig": write_moments(due, "%d.%m.%Y"),
        "Betrag": dress("", write_numbers(amount, "'", "."), " CHF"),
        "MWST": [f"{value:.1f}%" for value in tax],
        "Lieferant": supplier,
    }
    by_hand = {
        "term": term,
        "weekday": clock_parts(dated)["weekday"],
        "amount": amount,
        "tax": tax,
        "supplier": supplier,
    }
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return RawTable(as_texts(raw), truth, as_frame(by_hand), labelled=0.2, many_levels=True)


def shipments(seed: int) -> RawTable:
    """Parcels on their way: slow for the distance or light for their size, from some depots."""
    rng, n = np.random.default_rng(seed), 8_000
    sent = draw_moments(rng, n, days=120)
    distance = rng.gamma(2, 150, n)
    hours = 2 + distance / 60 * np.exp(rng.normal(0, 0.35, n))
    volume = np.exp(rng.normal(2.5, 0.7, n))
    weight = 0.4 * volume * np.exp(rng.normal(0, 0.5, n))
    depot, _, depot_risk = draw_levels(rng, n, 80, "Depot")
    slow, light = np.log((hours - 2) / distance * 60), -np.log(weight / volume / 0.4)
    risk = 4.0 * slow + 1.5 * light + 0.8 * depot_risk
    raw = {
        "sent": write_moments(sent, "%Y-%m-%d %H:%M"),
        "distance": [f"{value:.0f} km" for value in distance],
        "travelled": [f"{int(value)}h {int(60 * (value % 1))}m" for value in hours],
        "weight": [f"{value:.2f} kg" for value in weight],
        "volume": [f"{value:.1f} l" for value in volume],
        "depot": depot,
        "express": pick(rng, n, "true", "false"),
    }
    by_hand = {
        **clock_parts(sent),
        "distance": distance,
        "hours": hours,
        "weight": weight,
        "volume": volume,
        "depot": depot,
        "express": [float(word == "true") for word in raw["express"]],
    }
    truth = draw_anomalies(rng, 1.4 * risk, 0.05)
    return RawTable(as_texts(raw), truth, as_frame(by_hand), labelled=0.2, many_levels=True)


MADE: dict[str, Callable[[int], RawTable]] = {
    "payments": payments,
    "german": german,
    "cards": cards,
    "subscriptions": subscriptions,
    "sensors": sensors,
    "tickets": tickets,
    "orders": orders,
    "weblogs": weblogs,
    "claims": claims,
    "invoices": invoices,
    "shipments": shipments,
}
"""Tables that are drawn, by name."""
