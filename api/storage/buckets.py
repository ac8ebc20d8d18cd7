"""Buckets in the JSON API."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from podyard.api.storage import bodies, resources
from podyard.api.storage.answers import (
    answer,
    caller_project,
    own_address,
    preconditions,
    whole_number,
)
from podyard.api.storage.objects import page_start, page_token
from podyard.api.storage.parts import read, write_operations
from podyard.base.errors import Code, PodyardError, invalid
from podyard.control.storage import buckets
from podyard.domain.stored import BUCKETS_PER_PROJECT_MAX, DEFAULT_LOCATION, DEFAULT_STORAGE_CLASS
from podyard.http.context import principal, write_async


async def insert(request: Request) -> Response:
    body = await bodies.read_json(request)
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise invalid("Required parameter: name (of the bucket)", "name")
    project = caller_project(request)
    changes = resources.bucket_changes(body, {})
    unit = partial(
        buckets.create,
        principal=principal(request),
        project=project,
        name=name,
        location=str(body.get("location") or DEFAULT_LOCATION),
        storage_class=changes.get("storage_class", DEFAULT_STORAGE_CLASS),
        labels=changes.get("labels", {}),
    )
    return answer(resources.bucket_resource(await write_async(request, unit), own_address(request)))


async def list_buckets(request: Request) -> Response:
    project, prefix = caller_project(request), request.query_params.get("prefix", "")
    found = await read(
        request, partial(buckets.list_buckets, principal=principal(request), project=project)
    )
    start = page_start(request.query_params.get("pageToken"))
    left = [bucket for bucket in found if bucket.name.startswith(prefix) and bucket.name >= start]
    most = whole_number(request, "maxResults") or BUCKETS_PER_PROJECT_MAX
    body: dict[str, Any] = {"kind": "storage#buckets"}
    if len(left) > most:
        body["nextPageToken"] = page_token(left[most].name)
    body["items"] = [
        resources.bucket_resource(bucket, own_address(request)) for bucket in left[:most]
    ]
    return answer(body)


async def get(request: Request, name: str) -> Response:
    bucket = await read(request, partial(buckets.get, principal=principal(request), name=name))
    buckets.check_metageneration(bucket, preconditions(request))
    return answer(resources.bucket_resource(bucket, own_address(request)))


async def layout(request: Request, name: str) -> Response:
    bucket = await read(
        request,
        partial(
            buckets.get, principal=principal(request), name=name, permission="storage.objects.list"
        ),
    )
    return answer(resources.layout_resource(bucket))


async def patch(request: Request, name: str) -> Response:
    body = await bodies.read_json(request)
    caller = principal(request)
    before = await read(request, partial(buckets.get, principal=caller, name=name))
    changes = resources.bucket_changes(body, {} if request.method == "PUT" else before.labels)
    await write_operations(request)
    unit = partial(
        buckets.patch, principal=caller, name=name, changes=changes, when=preconditions(request)
    )
    return answer(resources.bucket_resource(await write_async(request, unit), own_address(request)))


async def delete(request: Request, name: str) -> Response:
    await write_operations(request)
    unit = partial(
        buckets.delete, principal=principal(request), name=name, when=preconditions(request)
    )
    await write_async(request, unit)
    return Response(status_code=204)


async def iam(request: Request, name: str) -> Response:
    """Return who may do what is said by roles in the bucket's project."""
    if request.method != "GET":
        text = (
            "access to buckets is by roles in their projects: use `podyard auth` and "
            "`podyard project`"
        )
        raise PodyardError(Code.UNIMPLEMENTED, text)
    await read(request, partial(buckets.get, principal=principal(request), name=name))
    return answer(
        {
            "kind": "storage#policy",
            "resourceId": f"projects/_/buckets/{name}",
            "version": 1,
            "etag": "CAE=",
        }
    )


async def test_permissions(request: Request, name: str) -> Response:
    caller = principal(request)
    bucket = await read(
        request,
        partial(buckets.get, principal=caller, name=name, permission="storage.objects.list"),
    )
    asked = request.query_params.getlist("permissions")
    allowed = [permission for permission in asked if caller.may(permission, bucket.project)]
    return answer({"kind": "storage#testIamPermissionsResponse", "permissions": allowed})


async def no_acl(_request: Request) -> Response:
    text = "Cannot get or change legacy ACLs when uniform bucket-level access is enabled"
    raise invalid(f"{text}: access is by roles in the bucket's project.")


async def no_folders(request: Request, name: str, kind: str) -> Response:
    """Folders that are resources: here they are parts of names only."""
    await read(request, partial(buckets.get, principal=principal(request), name=name))
    return answer({"kind": f"storage#{kind}"})


async def service_account(_request: Request, project: str) -> Response:
    email = f"service-{project}@gs-project-accounts.iam.gserviceaccount.com"
    return answer({"kind": "storage#serviceAccount", "email_address": email})
