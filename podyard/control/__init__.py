"""Use cases: plain functions `f(uow, ...)`, each one atomic change, in six rooms.

Rooms import downward only: checks, jobs, compute, platform, access; billing stands next to jobs and
compute. What a room asks of one that it may not import goes through the room's `ports`, which are
wired here, so that every importer of a room has them.
"""

from podyard.control.billing import accounts, spending
from podyard.control.billing import ports as billing_ports
from podyard.control.compute import ports as compute_ports
from podyard.control.compute.instances import follow
from podyard.control.compute.retire import retire
from podyard.control.jobs import gangs, preemption
from podyard.control.storage import ports as storage_ports

compute_ports.spending = spending
compute_ports.open_account = accounts.open_for
compute_ports.end_gangs = gangs.end_on_node
compute_ports.follow_node = follow.follow
billing_ports.give_notice = preemption.give_notice
billing_ports.retire = retire
storage_ports.open_account = accounts.open_for
storage_ports.on_relabel = spending.on_relabel
