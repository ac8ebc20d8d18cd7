"""The console's form and page of a job on several slices."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

from podyard.domain.log import line_text
from podyard.web.front import pages
from tests.unit.control.gang import Gang
from tests.yard import START, ZONE, open_yard

FORM = "/console/demo/jobs/program"
FIELDS = {"command": "true", "zone": ZONE, "accelerator_type": "v2-8", "job_id": "wide"}


def test_slices_are_a_field_of_the_form_and_nodes_of_the_page(tmp_path: Path) -> None:
    with open_yard(tmp_path, routers=(pages.router,)) as yard:

        def shown(address: str) -> str:
            return unescape(re.sub(r"<[^>]*>", "", yard.call("GET", address).text))

        one, two = (
            shown(f"{FORM}?{urlencode({**FIELDS, 'num_nodes': count})}") for count in ("", "2")
        )
        price = re.compile(r"\$([0-9.]+) per hour")
        assert float(price.findall(two)[0]) == 2 * float(price.findall(one)[0])
        assert "per hour, 2 slices" in two
        assert "--num-nodes=2" in two and "--num-nodes" not in one
        for text, why in (
            ("x", "'x': it must be a whole number"),
            ("0", "0: it must be from 1 to 64"),
        ):
            assert f"Slices is {why}" in shown(f"{FORM}?{urlencode({**FIELDS, 'num_nodes': text})}")
        gang = Gang(yard)
        body = {"run": {"command": "true"}, "numNodes": 2, "acceleratorType": "v2-8"}
        yard.ok("POST", f"{yard.jobs()}?jobId=wide", body)
        yard.step()
        for replica in gang.sync():
            log = {
                "seq": 0,
                "lines": 1,
                "at": START.rfc3339(),
                "millis": 0,
                "text": line_text("stdout", 0, "hello"),
            }
            assert gang.report(replica, log=log).status_code == 200
        html = yard.call("GET", f"/console/demo/jobs/{ZONE}/wide").text
        assert all(f'href="/console/demo/nodes/{ZONE}/wide-{index}"' in html for index in range(2))
        assert "[1.0 slice 0]" in html and "[1.1 slice 1]" in html
