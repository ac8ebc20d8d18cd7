"""Google's Cloud Billing catalogue: its wire, its versions in time, and that it says our prices in
Google's units."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import googleapiclient
import grpc
import httpx
import jsonschema
import pytest
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

from podyard.api import catalogue as routes
from podyard.api import catalogue_grpc
from podyard.base.clock import PlatformTime
from podyard.base.errors import PodyardError
from podyard.cli.redirect import tls as redirect_tls
from podyard.control.billing import catalogue
from podyard.control.billing.catalogue import CLOUD_TPU, COMPUTE_ENGINE, ListedSku
from podyard.hardware.accelerator_types import all_types, parse
from podyard.pricing.cards import load_rate_card
from podyard.pricing.current_card import default_rate_card
from tests.stack import PODYARD, Stack
from tests.waiting import patient
from tests.yard import START, Yard, open_yard

TPU, COMPUTE = "services/E000-3F24-B8AA", "services/6F81-5844-456A"
PER_CHIP = ("v5e", "v5p", "v6e")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with open_yard(tmp_path_factory.mktemp("yard")) as found:
        yield found


@pytest.fixture(scope="module")
def client(yard: Yard) -> Iterator[Any]:
    options = {"api_endpoint": yard.url}
    with build(
        "cloudbilling", "v1", credentials=Credentials(yard.token), client_options=options
    ) as found:
        yield found


@functools.cache
def schema(name: str) -> Any:
    """Google's own definition of a message, in which no other field is allowed and all are required
    but those that it says may be left out."""
    folder = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    schemas = json.loads((folder / "cloudbilling.v1.json").read_text())["schemas"]
    for known in schemas.values():
        known.pop("id")
        known["additionalProperties"] = False
        known["required"] = [field for field in known["properties"] if field != "aggregationInfo"]
        for value in known["properties"].values():
            for part in (value, value.get("items", {})):
                if "$ref" in part:
                    part["$ref"] = f"#/schemas/{part['$ref']}"
    return jsonschema.Draft202012Validator({"schemas": schemas, "$ref": f"#/schemas/{name}"})


def price_of(sku: dict[str, Any], version: int = 0) -> Fraction:
    (rate,) = sku["pricingInfo"][version]["pricingExpression"]["tieredRates"]
    money = rate["unitPrice"]
    assert (money["currencyCode"], rate["startUsageAmount"]) == ("USD", 0)
    assert 0 <= money["nanos"] < 10**9
    return int(money["units"]) + Fraction(money["nanos"], 10**9)


def test_googleapiclient_lists_services_and_skus(client: Any) -> None:
    services = client.services().list().execute()
    schema("ListServicesResponse").validate(services)
    assert [(item["name"], item["displayName"]) for item in services["services"]] == [
        (COMPUTE, "Compute Engine"),
        ("services/95FF-2EF5-5EA1", "Cloud Storage"),
        (TPU, "Cloud TPU"),
    ]
    for name in (TPU, COMPUTE):
        found = client.services().skus().list(parent=name).execute()
        schema("ListSkusResponse").validate(found)
        assert found["nextPageToken"] == ""  # SkyPilot takes it without asking whether it is there
        assert all(sku["name"] == f"{name}/skus/{sku['skuId']}" for sku in found["skus"])
        ids = [sku["skuId"] for sku in found["skus"]]
        assert len(set(ids)) == len(ids)
        assert all(
            len(part) == 4 and int(part, 16) >= 0 for item in ids for part in item.split("-")
        )
        (one,) = {len(sku["pricingInfo"]) for sku in found["skus"]}
        assert one == 1


def test_the_texts_that_programs_look_for(client: Any) -> None:
    found = {
        sku["description"]: sku
        for name in (TPU, COMPUTE)
        for sku in client.services().skus().list(parent=name).execute()["skus"]
    }
    expected = {
        "Tpu-v2 running in us-central1": ("TPU", "OnDemand", "4.5"),
        "Tpu-v2 Pod running in us-central1": ("TPU", "OnDemand", "6"),
        "Spot Preemptible Tpu-v3 Pod running in europe-west4": ("TPU", "OnDemand", "2.64"),
        "Preemptible Tpu-v3 running in europe-west4": ("TPU", "OnDemand", "2.64"),
        "Tpu-v4 Pod running in us-central2": ("TPU", "OnDemand", "12.88"),
        "Spot Preemptible Tpu-v4 Pod running in us-central2": ("TPU", "OnDemand", "3.686"),
        "Commitment v1: Tpu-v2 Pod running in us-central1 for 1 Year": ("TPU", "Commit1Yr", "3.78"),
        "TpuV5e running in us-east5": ("TPU", "OnDemand", "1.2"),
        "Spot Preemptible TpuV5p running in europe-west1": ("TPU", "Preemptible", "1.783782"),
        "Commitment v1: TpuV6e running in us-east5 for 3 Year": ("TPU", "Commit3Yr", "1.215"),
        "N1 Predefined Instance Core running in us-central1": (
            "N1Standard",
            "OnDemand",
            "0.031611",
        ),
        "Spot Preemptible N1 Predefined Instance Ram running in asia-east1": (
            "N1Standard",
            "Preemptible",
            "0.000981",
        ),
        "SSD backed PD Capacity in europe-west4": ("SSD", "OnDemand", "0.187"),
    }
    for text, (group, usage_type, usd) in expected.items():
        category = found[text]["category"]
        assert (category["resourceGroup"], category["usageType"]) == (group, usage_type), text
        assert price_of(found[text]) == Fraction(usd), text
    hour = found["TpuV5e running in us-east5"]["pricingInfo"][0]["pricingExpression"]
    assert (hour["usageUnit"], hour["baseUnit"], hour["baseUnitConversionFactor"]) == (
        "h",
        "s",
        3600,
    )
    disk = found["SSD backed PD Capacity in europe-west4"]["pricingInfo"][0]["pricingExpression"]
    assert (disk["usageUnit"], disk["baseUnit"]) == ("GiBy.mo", "By.s")
    assert disk["baseUnitConversionFactor"] == 2**30 * 730 * 3600


def node_price(skus: tuple[ListedSku, ...], kind: str, region: str, start: str) -> Fraction | None:
    """The nanos of a node as its reader finds them: the first SKU with the words, times its
    units."""
    found = parse(kind)
    generation = found.generation.name
    words = f"TpuV{generation[1:]}" if generation in PER_CHIP else f"Tpu-{generation}"
    pod = generation == "v4" or (generation in ("v2", "v3") and found.core_count > 8)
    for sku in skus:
        text = f"{start}{words}{' Pod' if pod else ''} running"
        if sku.region == region and sku.description.startswith(text):
            units = (
                Fraction(found.chip_count)
                if generation in PER_CHIP
                else Fraction(found.core_count, 8)
            )
            return sku.prices[-1][1] * units
    return None


def test_every_price_of_every_type_follows_from_the_catalogue() -> None:
    card = default_rate_card()
    skus = (*catalogue.skus_of(card, CLOUD_TPU), *catalogue.skus_of(card, COMPUTE_ENGINE))
    now = PlatformTime(START.nanos)
    compared = 0
    for region in sorted({sku.region for sku in card.skus.values()}):
        for kind in all_types():
            for usage, start in (
                ("on-demand", ""),
                ("spot", "Spot Preemptible "),
                ("preemptible", "Preemptible "),
            ):
                found = (
                    node_price(skus, kind.name, region, start)
                    if kind.generation.node_type
                    else None
                )
                try:
                    price = card.price(kind.name, region, usage, now).total_nanos_per_hour
                except PodyardError:
                    assert found is None, (kind.name, region, usage)
                    continue
                assert found == price, (kind.name, region, usage)
                compared += 1
    assert compared > 1000


def test_slices_without_one_price_per_unit_are_taken_for_nothing_else() -> None:
    card = load_rate_card("""
        {sources: {s: x}, skus: {
          a: {type: v2-32, generation: v2, region: us-east1, usage: on-demand, unit: slice_hour,
              prices: [{from: "2026-01-01T00:00:00Z", usd: "24", source: s}]},
          b: {type: v2-128, generation: v2, region: us-east1, usage: on-demand, unit: slice_hour,
              prices: [{from: "2026-01-01T00:00:00Z", usd: "90", source: s}]},
          c: {type: v3-32, generation: v3, region: us-east1, usage: on-demand, unit: slice_hour,
              prices: [{from: "2026-01-01T00:00:00Z", usd: "0.000000001", source: s}]},
          d: {generation: v6e, region: us-east1, usage: spot, unit: chip_hour,
              prices: [{from: "2026-01-01T00:00:00Z", usd: "1", source: s}]},
          e: {type: v6e-8, generation: v6e, region: us-east1, usage: spot, unit: device_hour,
              prices: [{from: "2026-01-01T00:00:00Z", usd: "7", source: s}]}}}
    """)
    found = {sku.description: sku.prices[0][1] for sku in catalogue.skus_of(card, CLOUD_TPU)}
    assert found == {
        "TPU slice v2-32 running in us-east1": 24 * 10**9,
        "TPU slice v2-128 running in us-east1": 90 * 10**9,
        "TPU slice v3-32 running in us-east1": 1,
    }
    per_type = {
        sku.description: sku.prices[0][1] for sku in catalogue.skus_of(card, COMPUTE_ENGINE)
    }
    assert per_type["Spot Preemptible TPU slice v6e-8 running in us-east1"] == 7 * 10**9
    assert per_type["Spot Preemptible TPU slice v6e-16 running in us-east1"] == 16 * 10**9


def test_ids_are_the_same_for_ever(client: Any) -> None:
    ids = {
        sku["description"]: sku["skuId"]
        for sku in client.services().skus().list(parent=TPU).execute()["skus"]
    }
    assert ids["Tpu-v2 running in us-central1"] == "95D2-902D-C8CA"
    assert ids["Tpu-v4 Pod running in us-central2"] == "6A1D-F0B2-F469"


TWO_PRICES = """
{sources: {s: x}, skus: {a: {generation: v6e, region: us-east1, usage: spot, unit: chip_hour, prices: [
  {from: "2026-02-10T00:00:00Z", usd: "1", source: s}, {from: "2026-02-20T00:00:00Z", usd: "2.5", source: s},
  {from: "2026-02-28T20:00:00Z", usd: "3", source: s}, {from: "2026-03-02T00:00:00Z", usd: "4", source: s}]}}}
"""  # noqa: E501


@pytest.fixture
def two_prices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(routes, "default_rate_card", lambda: load_rate_card(TWO_PRICES))
    routes._skus.cache_clear()
    yield
    routes._skus.cache_clear()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("2026-02-01T08:00:00Z", "2026-02-10T00:00:00Z", []),
        ("2026-02-01T08:00:00Z", "2026-02-10T00:00:01Z", [("2026-02-10T00:00:00Z", "1")]),
        ("2026-02-15T00:00:00Z", "2026-02-16T00:00:00Z", [("2026-02-15T00:00:00Z", "1")]),
        (
            "2026-02-15T00:00:00Z",
            "2026-02-28T21:00:00Z",
            [
                ("2026-02-15T00:00:00Z", "1"),
                ("2026-02-20T00:00:00Z", "2.5"),
                ("2026-02-28T20:00:00Z", "3"),
            ],
        ),
        ("2026-02-20T01:00:00+01:00", "2026-02-21T00:00:00Z", [("2026-02-20T00:00:00Z", "2.5")]),
    ],
)
def test_a_time_range_has_the_versions_of_its_time(
    client: Any, two_prices: None, start: str, end: str, expected: list[tuple[str, str]]
) -> None:
    found = client.services().skus().list(parent=COMPUTE, startTime=start, endTime=end).execute()
    schema("ListSkusResponse").validate(found)
    timeline = [
        (info["effectiveTime"], price_of(sku, number))
        for sku in found["skus"]
        for number, info in enumerate(sku["pricingInfo"])
    ]
    assert timeline == [(moment, Fraction(usd)) for moment, usd in expected]


def test_without_a_range_the_price_of_now_is_there(
    client: Any, two_prices: None, yard: Yard
) -> None:
    def latest() -> tuple[str, Fraction]:
        (sku,) = client.services().skus().list(parent=COMPUTE).execute()["skus"]
        (info,) = sku["pricingInfo"]
        return info["effectiveTime"], price_of(sku)

    now = yard.ok("GET", "/podyard/v1/clock")["platformTime"]
    moment, usd = latest()
    assert usd == 3
    age = PlatformTime.from_rfc3339(now).seconds_since(PlatformTime.from_rfc3339(moment))
    assert 0 <= age <= 12 * 3600


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("pageSize=-1", "pageSize '-1' is not a number"),
        ("pageSize=many", "pageSize 'many' is not a number"),
        ("pageToken=nonsense", "invalid pageToken"),
        ("pageToken=bm9uZQ==", "invalid pageToken: use the nextPageToken of this list"),
        ("colour=red", 'Unknown name "colour"'),
        ("currencyCode=EUR", "currencyCode 'EUR': this catalogue has only prices in USD"),
        ("startTime=2026-02-01T08:00:00Z", "must be set together"),
        ("endTime=2026-02-01T08:00:00Z", "must be set together"),
        ("startTime=yesterday&endTime=today", "'yesterday' is not an RFC 3339 time"),
        ("startTime=2026-02-02T00:00:00Z&endTime=2026-02-02T00:00:00Z", "must be before endTime"),
        ("startTime=2026-02-02T00:00:00Z&endTime=2027-02-02T00:00:00Z", "is in the future"),
        (
            "startTime=2026-02-01T07:00:00Z&endTime=2026-02-01T09:00:00Z",
            "one calendar month of America/Los_Angeles",
        ),
    ],
)
def test_bad_requests_are_refused_in_google_s_envelope(yard: Yard, query: str, told: str) -> None:
    assert told in yard.refused(400, "INVALID_ARGUMENT", "GET", f"/v1/{COMPUTE}/skus?{query}")


def test_an_unknown_service_is_not_found(client: Any, yard: Yard) -> None:
    with pytest.raises(HttpError) as caught:
        client.services().skus().list(parent="services/0000-0000-0000").execute()
    assert caught.value.status_code == 404
    assert "E000-3F24-B8AA (Cloud TPU)" in str(caught.value)
    yard.refused(404, "NOT_FOUND", "GET", "/v1/services/E000-3F24-B8AA")
    yard.refused(400, "INVALID_ARGUMENT", "GET", "/v1/services?startTime=2026-02-01T08:00:00Z")


def test_pages(client: Any) -> None:
    whole = client.services().skus().list(parent=TPU, pageSize=999999).execute()["skus"]
    pages, request = [], client.services().skus().list(parent=TPU, pageSize=10)
    while request is not None:
        page = request.execute()
        pages.append(page["skus"])
        request = client.services().skus().list_next(request, page)
    assert [sku for page in pages for sku in page] == whole
    assert {len(page) for page in pages[:-1]} == {10}
    services = client.services().list(pageSize=2).execute()
    assert len(services["services"]) == 2
    more = client.services().list(pageSize=1, pageToken=services["nextPageToken"]).execute()
    assert ([item["displayName"] for item in more["services"]], more["nextPageToken"]) == (
        ["Cloud TPU"],
        "",
    )


def test_a_credential_is_needed_and_any_will_do(yard: Yard) -> None:
    made = yard.ok("POST", "/podyard/v1/projects/demo/apiKeys", {"email": "owner@podyard.local"})
    path = f"{yard.url}/v1/services"
    assert httpx.get(path).status_code == 401
    assert httpx.get(path, params={"key": "wrong"}).status_code == 400
    for parameters in ({"key": made["key"]}, {"access_token": yard.token}):
        assert httpx.get(path, params=parameters).status_code == 200
    assert httpx.get(path, headers={"x-goog-api-key": made["key"]}).status_code == 200


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.xdist_group("contract")
def test_the_grpc_front_says_the_same(stack: Stack) -> None:
    listed = stack.call("GET", f"/v1/{TPU}/skus")["skus"]
    port = json.loads((stack.data / "podyard.json").read_text())["grpcPort"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

        def call(rpc: str, token: str, **fields: Any) -> Any:
            takes, gives = (
                catalogue_grpc.message_class(name) for name in catalogue_grpc.METHODS[rpc]
            )
            ask = channel.unary_unary(
                f"/{catalogue_grpc.SERVICE}/{rpc}", takes.SerializeToString, gives.FromString
            )
            return ask(
                takes(**fields),
                metadata=[("authorization", f"Bearer {token}")],
                timeout=patient(20),
            )

        found = call("ListSkus", stack.token, parent=TPU, page_size=7)
        rest = call("ListSkus", stack.token, parent=TPU, page_token=found.next_page_token)
        assert [sku.sku_id for sku in (*found.skus, *rest.skus)] == [sku["skuId"] for sku in listed]
        money = found.skus[0].pricing_info[0].pricing_expression.tiered_rates[0].unit_price
        assert Fraction(money.units) + Fraction(money.nanos, 10**9) == price_of(listed[0])
        assert [item.display_name for item in call("ListServices", stack.token).services] == [
            "Compute Engine",
            "Cloud Storage",
            "Cloud TPU",
        ]
        for token, parent, code in (
            (stack.token, "services/0/../x?", grpc.StatusCode.NOT_FOUND),
            ("wrong", TPU, grpc.StatusCode.UNAUTHENTICATED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call("ListSkus", token, parent=parent)
            assert caught.value.code() is code


ASKS = """
import json
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError
billing = build("cloudbilling", "v1")
skus = billing.services().skus().list(parent="services/E000-3F24-B8AA").execute()["skus"]
try:
    billing.billingAccounts().getIamPolicy(resource="billingAccounts/x").execute()
except HttpError as error:
    print(json.dumps([len(skus), error.status_code]))
"""


@pytest.mark.slow
def test_google_s_host_of_prices_is_podyard_s_under_run(yard: Yard, tmp_path: Path) -> None:
    dropped = (
        "PODYARD_",
        "GOOGLE_",
        "CLOUDSDK_",
        "GCE_",
        "HTTP",
        "http",
        *redirect_tls.BUNDLE_VARIABLES,
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    environ |= {"PODYARD_URL": yard.url, "PODYARD_TOKEN": yard.token, "PODYARD_DATA": str(tmp_path)}
    command = [*PODYARD, "run", "--", sys.executable, "-W", "ignore", "-c", ASKS]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=patient(60))
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == [36, 501]
    assert "nothing was sent to Google: cloudbilling.googleapis.com (1)" in done.stderr
