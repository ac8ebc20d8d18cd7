"""The pages that the console has of resources, by their full names."""

from __future__ import annotations

from podyard.web.kit.render import project_url

# Sections by the collections of names such as `projects/P/locations/Z/nodes/N`.
_SECTIONS = {
    "nodes": "nodes",
    "jobs": "jobs",
    "instances": "instances",
    "instanceGroupManagers": "instance-groups",
}


def resource_url(name: str) -> str:
    """The address of the page of a resource; empty for what has no page."""
    parts = name.split("/")
    section = _SECTIONS.get(parts[4]) if len(parts) == 6 else None
    return project_url(parts[1], section, parts[3], parts[5]) if section else ""


def noun_of(name: str) -> str:
    """The word for a node on the road that it was asked for by: `node` or `instance`."""
    return "instance" if "/instances/" in name else "node"
