"""SkyPilot's fetcher of Google's prices, as `python -m sky.catalog.data_fetchers.fetch_gcp` runs
it."""

from __future__ import annotations

import csv
import os
import runpy
import sys
from pathlib import Path
from typing import Any

os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"

from answer import answer


def catalogue() -> Any:
    """The rows of the file that the whole fetcher writes."""
    sys.argv[1:] = ["--all-regions", "--single-threaded"]
    runpy.run_module("sky.catalog.data_fetchers.fetch_gcp", run_name="__main__")
    with Path("gcp/vms.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def tpus() -> Any:
    """[[type, zone, price, spot price], ...] before it rounds them."""
    from sky.catalog.data_fetchers import fetch_gcp

    fetch_gcp.SINGLE_THREADED = True
    found = fetch_gcp.get_tpu_df(
        fetch_gcp.get_skus(fetch_gcp.GCE_SERVICE_ID), fetch_gcp.get_skus(fetch_gcp.TPU_SERVICE_ID)
    )
    return [
        [
            row["AcceleratorName"].removeprefix("tpu-"),
            row["AvailabilityZone"],
            _text(row["Price"]),
            _text(row["SpotPrice"]),
        ]
        for _, row in found.iterrows()
    ]


def _text(price: float | None) -> str | None:
    return None if price is None or price != price else repr(float(price))


answer(catalogue, tpus)
