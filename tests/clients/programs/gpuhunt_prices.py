"""gpuhunt's fetcher of Google's prices, whole: what `python -m gpuhunt gcp` makes its catalogue
of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpuhunt.resources
from answer import answer

# The package has no table of prices that were copied by hand, which its repository has: none of
# them is to be used.
Path(gpuhunt.resources.__file__).with_name("tpu_pricing.json").write_text("{}")


def offers() -> Any:
    """[[instance, zone, spot, price], ...] of all machines with and without TPUs."""
    from gpuhunt.providers import gcp

    return [
        [item.instance_name, item.location, item.spot, repr(item.price)]
        for item in gcp.GCPProvider(project="demo").get()
    ]


def tpus() -> Any:
    """[[type, zone, price, spot price], ...] of all TPU types, also those whose machines it does
    not know."""
    from gpuhunt.providers import gcp

    return [
        [item["instance_name"], item["location"], repr(item["price"]), repr(item["spot"])]
        for item in gcp._get_priced_tpu_configs("demo")
    ]


answer(offers, tpus)
