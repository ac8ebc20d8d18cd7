"""The parts of a box: its file systems, addresses, names and limits. Pure: `box.py` and
`box/init.py` act on it."""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from podyard.domain.host import LOOPBACK, NodeFacts, address_number
from podyard.hardware.accelerator_types import AcceleratorType
from podyard.programs.datasets.published import FOLDER_VARIABLE
from podyard.programs.slice import RUN_VARIABLE

USER, USER_ID, IDS = "podyard", 1000, 65536
HOME = Path("/home") / USER
PROGRAMS = Path("/podyard/programs")  # where users' programs write what they compile and run
DATASETS = Path("/podyard/datasets")  # published ones, which programs would download
METADATA_ADDRESS = "169.254.169.254"
PROXY_PORT = 3128  # of a box's way out, next to its metadata server
METADATA_NAMES = ("metadata.google.internal", "metadata")
STORAGE_NAMES = ("storage.googleapis.com", "www.googleapis.com")  # what TensorFlow asks, over TLS
PROXY_URL = f"http://{METADATA_ADDRESS}:{PROXY_PORT}"
MTU_BYTES = 8896  # the largest that Google's networks have
FRAME_BYTES_MAX = MTU_BYTES + 18  # with Ethernet's header and a tag
NETWORK_BITS = 9  # 10.128.0.0/9, as Google's default network: all hosts are neighbours
# Above what systemd and /etc/subuid hand out, below the ids that mean "nobody" in 32 bits.
_FIRST_IDS, _ID_RANGES = 0x7000, 0x8F00
_HOST_NAME_BYTES_MAX = 64  # Linux's
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Folders of the machine that a box sees as the machine's root does, and changes for itself only.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/lib/dpkg")
_FOLDERS = {
    **dict.fromkeys(
        ("/root", "/var/log", "/var/cache", "/opt", "/srv", "/mnt", "/media", "/run/podyard"), 0o755
    ),
    **dict.fromkeys(("/var/tmp", "/run/lock"), 0o1777),
}
# A copied shell that keeps the rights of its file's owner, and what makes `sudo` of it: few images
# have a sudo, and those that have one ask for a password or for a PAM that is not here.
# Without root a box has one user id: another name changes what programs see, and no right.
AS_ROOT = ("unshare", "--map-user=0", "--map-group=0", "--")
# Where libtpu's driver makes /dev/accel0; later ones are handed over by VFIO.
_ACCEL_GENERATIONS = ("v2", "v3", "v4")
_ROOT_SHELL = "/run/podyard/sh"
_SUDO = "/run/podyard/sudo"
_SUDO_TEXT = """#!/run/podyard/sh -p
# Runs a command as root, or as another user, of this box: no password is asked for, and the environment stays.
user=root shell=
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        --user=*) user=${1#*=} ;;
        --user) user=$2; shift ;;
        -[gpCDRrtThU] | --group | --prompt | --chdir | --host) shift ;;
        -i | --login) shell=login ;;
        -s | --shell) shell=here ;;
        -[vkKl] | --validate | --reset-timestamp | --remove-timestamp | --list) [ $# -gt 1 ] || exit 0 ;;
        -V | --version) echo "sudo of a Podyard box"; exit 0 ;;
        --*) ;;
        -*u)
            case $1 in *i*) shell=login ;; *s*) shell=here ;; esac
            user=$2
            shift
            ;;
        -u*) user=${1#-u} ;;
        -*) case $1 in *i*) shell=login ;; *s*) shell=here ;; esac ;;
        *=*) export "$1" ;;
        *) break ;;
    esac
    shift
done
uid=$(id -u -- "$user") && gid=$(id -g -- "$user") || exit 1
export SUDO_USER="$(id -run)" SUDO_UID="$(id -ru)" SUDO_GID="$(id -rg)" USER="$user" LOGNAME="$user"
export HOME="$(getent passwd "$user" | cut -d: -f6)"
case $shell in
    login) cd "$HOME" && { [ $# -eq 0 ] && set -- "$SHELL" -l || set -- "$SHELL" -lc "$*"; } ;;
    here) [ $# -eq 0 ] && set -- "$SHELL" || set -- "$SHELL" -c "$*" ;;
esac
[ $# -gt 0 ] || { echo "usage: sudo [-u USER] [-i | -s] [VARIABLE=VALUE] COMMAND" >&2; exit 1; }
"""  # noqa: E501
_BECOME = 'exec setpriv --reuid="$uid" --regid="$gid" --init-groups -- "$@"\n'
_BECOME_WITHOUT_ROOT = 'exec unshare --map-user="$uid" --map-group="$gid" -- "$@"\n'
# What a box without root may add to and delete from, though the machine's files there have another
# owner: what is called by its path, programs that are copied to where all look for them, and
# packages of Python.
_CHANGED = ("bin", "local", "local/*", "lib", "lib/python3*", "lib/python3*/site-packages")

# What a box may take. A host that takes more is stopped by Linux, and nothing outside of it.
# Threads count as processes. With 8 devices a JAX program has 100 and 4 for each core, TensorFlow's
# 50 and 33 for each; Ray has 160 and 22.
PROCESSES_MAX = 512
PROCESSES_PER_CORE_MAX = 64
YARD_PROCESSES_SHARE_MAX = 0.5  # of the process numbers of the machine, for all boxes of an agent
# of the machine's memory for one box, so that one hog leaves room for the others
MEMORY_SHARE_MAX = 0.5
# for all boxes of an agent: the platform and the machine keep the rest
YARD_MEMORY_SHARE_MAX = 0.75
CPU_WEIGHT = 50  # half of what other programs have: a busy box takes a third of their time at most
OOM_SCORE = 500  # where the machine's memory ends all the same, Linux ends programs of boxes first


@dataclasses.dataclass(frozen=True, slots=True)
class Mount:
    """`kind`: bind, overlay (what is changed lies in `layer`) or empty. `owners`: root, user or
    nobody, as which the owner of the machine's files is seen inside. `changed`: patterns of folders
    that the box's user owns, also where another user owns them on the machine."""

    kind: str
    source: str
    target: str
    owners: str = "nobody"
    read_only: bool = False
    layer: str = ""
    changed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class BoxPlan:
    """The plan that `box/init.py` reads. `maps`: user ids of the namespaces that translate owners,
    "root" and "user"; without root only of the box's own, "own". `devices`: files of the TPU below
    /dev. `calls`: of `box_calls.profile_of_boxes`. `folders`: path -> mode; `links`: path ->
    target; `files`: path -> mode and text; `copies`: file of the machine -> path, with the right of
    its owner."""

    name: str
    root: str
    layers: str
    stage: str
    mounts: tuple[Mount, ...]
    maps: Mapping[str, str]
    devices: tuple[str, ...]
    cgroups: tuple[str, ...]
    folders: Mapping[str, int]
    links: Mapping[str, str]
    files: Mapping[str, tuple[int, str]]
    copies: Mapping[str, str]
    oom_score: int = OOM_SCORE
    calls: tuple[str, int] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """The platform's own files that a box sees, read-only: its Python, and Podyard. `prefix` is
    where packages lie, which a box may change for itself; `layer` is where its changes are.
    `hidden`: secrets that may lie below one of these. `datasets`: a folder that boxes see as
    `DATASETS`."""

    prefix: str
    paths: tuple[str, ...]
    hidden: tuple[str, ...]
    layer: str = "prefix"
    datasets: str = ""

    def covers(self, path: str) -> bool:
        return any(is_below(path, top) for top in (*_SYSTEM, self.prefix, *self.paths))


def is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def mounts(
    folder: Path, etc: Path, shown: Shown, folders: Mapping[str, str | None], *, is_root: bool
) -> tuple[Mount, ...]:
    """In the order of mounting. `folders`: the machine's folders and links of `_SYSTEM` that exist:
    folder -> None,
    link -> what it leads to (a link is made, not mounted)."""
    changed = () if is_root else _CHANGED
    found = [
        Mount("overlay", name, name, "root", layer=_layer(name), changed=changed)
        for name, link in folders.items()
        if link is None
    ]
    found.append(Mount("overlay", str(etc), "/etc", "root", layer="etc"))
    found.append(Mount("bind", str(folder / "home"), str(HOME), "user"))
    found.append(Mount("bind", str(folder / "programs"), str(PROGRAMS), "user"))
    found.append(Mount("bind", str(folder / "tmp"), "/tmp", "root"))
    there = [top for top, link in folders.items() if link is None]
    tops = sorted({*shown.paths} - {shown.prefix}, key=len)
    for path in tops:
        if not any(is_below(path, top) for top in there):
            found.append(Mount("bind", path, path, read_only=True))
            there.append(path)
    if not any(shown.prefix == top or is_below(shown.prefix, top) for top in folders):
        found.append(
            Mount("overlay", shown.prefix, shown.prefix, "user", layer=shown.layer, changed=changed)
        )
        there.append(shown.prefix)
    for path in shown.hidden:
        if any(is_below(path, top) for top in there):
            found.append(Mount("empty", path, path))
    if shown.datasets:
        found.append(Mount("bind", shown.datasets, str(DATASETS), read_only=True))
    return tuple(found)


def system_folders() -> dict[str, str | None]:
    """The machine's own folders: name -> None, or what the link of this name leads to."""
    return {
        name: str(Path(name).readlink()) if Path(name).is_symlink() else None
        for name in _SYSTEM
        if Path(name).is_symlink() or Path(name).is_dir()
    }


def id_maps(number: int) -> dict[str, str]:
    """The user ids of the host with this address: one range of the machine's for each box. `user`:
    the owner of the machine's files is the box's user, and the other way round."""
    first = (_FIRST_IDS + number % _ID_RANGES) << 16
    swapped = (
        f"0 {first + USER_ID} 1\n1 {first + 1} {USER_ID - 1}\n{USER_ID} {first} 1\n"
        f"{USER_ID + 1} {first + USER_ID + 1} {IDS - USER_ID - 1}"
    )
    return {"root": f"0 {first} {IDS}", "user": swapped}


def plan(  # noqa: PLR0913
    facts: NodeFacts,
    index: int,
    folder: Path,
    etc: Path,
    shown: Shown,
    folders: Mapping[str, str | None],
    cgroups: Iterable[str],
    url: str,
    *,
    is_root: bool,
) -> BoxPlan:
    """Of one host, whose folder is `folder`. What a box keeps lies in `home`, `tmp` and `box`
    there. `url`: of the API. `is_root`: whether Podyard is."""
    name = facts.host_name(index)[:_HOST_NAME_BYTES_MAX]
    links = {path: link for path, link in folders.items() if link is not None}
    return BoxPlan(
        name=name,
        root=str(folder / "box" / "root"),
        layers=str(folder / "box" / "layers"),
        stage=str(folder / "box" / "stage"),
        mounts=mounts(folder, etc, shown, folders, is_root=is_root),
        maps=id_maps(address_number(facts.host_addresses[index]))
        if is_root
        else {"own": f"{USER_ID} 0 1\n"},
        devices=device_files(facts.kind),
        cgroups=tuple(cgroups),
        folders=_FOLDERS,
        links={**links, "/var/run": "/run", "/usr/bin/sudo": _SUDO},
        files={
            _SUDO: (0o755, _SUDO_TEXT + (_BECOME if is_root else _BECOME_WITHOUT_ROOT)),
            "/etc/hosts": (0o644, host_file(facts, url)),
            "/etc/hostname": (0o644, f"{name}\n"),
        },
        copies={"/bin/sh": _ROOT_SHELL},
    )  # fmt: skip


def device_files(kind: AcceleratorType) -> tuple[str, ...]:
    """Return the files below /dev that a host has for its chips. Ray counts either
    (python/ray/_private/accelerators/tpu.py)."""
    if not kind.chip_count:
        return ()
    if kind.generation.name in _ACCEL_GENERATIONS:
        return tuple(f"accel{number}" for number in range(kind.chips_per_host))
    return ("vfio/vfio", *(f"vfio/{number}" for number in range(kind.chips_per_host)))


def switch_name(facts: NodeFacts, agent_folder: Path) -> str:
    """The network that the hosts of a slice share on the agent's machine, or those of all slices of
    one request: no other box is in it. The first host's address is drawn for each yard, and so is
    the number of a project."""
    first = (
        facts.multislice.coordinator_ip if facts.multislice is not None else facts.host_addresses[0]
    )
    return f"podyard-{_digest(f'{first} {facts.project_number} {agent_folder}')}"


def cable_name(agent: str) -> str:
    """Of the device in a switch that leads to the hosts of another agent."""
    return f"c{_digest(agent)}"


def cable_commands(name: str) -> str:
    """In the switch: frames that came by another cable do not leave by this one."""
    return (
        f"link set {name} mtu {MTU_BYTES} master br0 up\nlink set {name} type bridge_slave "
        "isolated on\n"
    )


def hardware_address(host_id: str) -> str:
    """Of a box's eth0, wherever its host lives: neighbours need not ask again."""
    return ":".join(f"{byte:02x}" for byte in (2, *hashlib.sha256(host_id.encode()).digest()[:5]))


def port_name(host_id: str) -> str:
    """Of a box's plug in its switch; Linux takes 15 bytes."""
    return f"h{_digest(host_id)}"


def gate_name(host_id: str) -> str:
    """Of the other end of the cable that leads a box to its metadata server. In the box itself the
    server would
    take port 80 from all that listen at any address."""
    return f"m{_digest(host_id)}"


def switch_commands() -> str:
    """For `ip -batch`, in the new namespace of a switch."""
    return "link add br0 type bridge\nlink set br0 up\n"


def plug_commands(host_id: str, pid: int, own_address: str) -> str:
    """In the switch: the cables to the box whose first process is `pid`."""
    port, gate, address = port_name(host_id), gate_name(host_id), hardware_address(host_id)
    return "".join(
        f"{line}\n"
        for line in (
            (
                f"link add {port} mtu {MTU_BYTES} type veth peer name eth0 address {address} mtu "
                f"{MTU_BYTES} netns {pid}"
            ),
            f"link set {port} master br0 up",
            f"link add {gate} type veth peer name meta0 netns {pid}",
            f"addr add {METADATA_ADDRESS}/32 dev {gate}",
            f"link set {gate} up",
            f"route add {own_address}/32 dev {gate}",
        )
    )


def inside_commands(facts: NodeFacts, index: int, url: str) -> str:
    """In the box: its addresses. There is no route: what is not on the switch is nowhere. `url`: of
    the API, for which
    a relay in the box answers."""
    own, api = facts.internal_ips[index], api_inside(url)[0]
    return "".join(
        (
            "link set lo up\n",
            "" if api.startswith("127.") else f"addr add {api}/32 dev lo\n",
            f"addr add {own}/{NETWORK_BITS} dev eth0\n",
            "link set eth0 up\n",
            "link set meta0 up\n",
            f"route add {METADATA_ADDRESS}/32 dev meta0 src {own}\n",
        )
    )


def names_of(facts: NodeFacts) -> dict[str, str]:
    """Name -> address, as a box knows them: the slice, the metadata server and Cloud Storage."""
    found = dict.fromkeys(METADATA_NAMES, METADATA_ADDRESS) | {"localhost": LOOPBACK, "": LOOPBACK}
    found |= dict.fromkeys(STORAGE_NAMES, LOOPBACK)  # a relay
    for number, address in enumerate(facts.internal_ips):
        name = facts.host_name(number)
        found |= {f"{name}.{facts.zone}.c.{facts.project}.internal": address, name: address}
    return found


def host_file(facts: NodeFacts, url: str) -> str:
    """/etc/hosts, with the API if it has a name."""
    names = {name: address for name, address in names_of(facts).items() if name}
    api_name = urlsplit(url).hostname
    if api_name and not _is_address(api_name):
        names[api_name] = LOOPBACK
    return "".join(f"{address} {name}\n" for name, address in names.items())


def etc_files(passwd: str, group: str) -> dict[str, tuple[int, str]]:
    """Return what every box has in /etc instead of the machine's: name -> mode and text. Of the
    machine's users only those of its programs, and no password."""
    users = [line for line in passwd.splitlines() if _is_system(line)]
    users.append(f"{USER}:x:{USER_ID}:{USER_ID}:{USER}:{HOME}:/bin/bash")
    groups = [line for line in group.splitlines() if _is_system(line)]
    names = [line.partition(":")[0] for line in users]
    return {
        "passwd": (0o644, "\n".join([*users, ""])),
        "group": (0o644, "\n".join([*groups, f"{USER}:x:{USER_ID}:", ""])),
        "shadow": (0o600, "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names)),
        "resolv.conf": (0o644, "# No name server: a box reaches nothing outside.\n"),
    }


def _is_system(line: str) -> bool:
    """Of /etc/passwd or /etc/group: not a person's, whose numbers begin at 1000."""
    parts = line.split(":")
    return (
        len(parts) > 2
        and parts[2].isdigit()
        and (int(parts[2]) < USER_ID or int(parts[2]) == 65534)
    )


def facts_inside(facts: NodeFacts) -> NodeFacts:
    """Return what a box knows of its node: hosts are reached at their internal addresses."""
    slices = facts.multislice
    if slices is not None:
        slices = dataclasses.replace(slices, coordinator_ip=slices.coordinator_internal_ip)
    return dataclasses.replace(facts, host_addresses=(), multislice=slices)


def environment(
    base: Mapping[str, str], shown: Shown, facts: NodeFacts, *, has_proxy: bool
) -> dict[str, str]:
    """Of programs in a box, beyond what all hosts have."""
    own = {
        "HOME": str(HOME),
        "USER": USER,
        "LOGNAME": USER,
        "PATH": path_variable(base["PATH"], shown),
    }
    own[RUN_VARIABLE] = str(PROGRAMS)
    if shown.datasets:
        own[FOLDER_VARIABLE] = str(DATASETS)
    if has_proxy:
        near = ",".join(
            ("127.0.0.1", METADATA_ADDRESS, *filter(None, names_of(facts)), *facts.internal_ips)
        )
        for name, value in (
            ("no_proxy", near),
            *((f"{kind}_proxy", PROXY_URL) for kind in ("http", "https")),
        ):
            own |= {name: value, name.upper(): value}
    return own


def api_inside(url: str) -> tuple[str, int]:
    """Return where a relay answers in a box for the API at `url`."""
    parts = urlsplit(url)
    host = parts.hostname or LOOPBACK
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return (host if _is_address(host) and ":" not in host else LOOPBACK), port


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def path_variable(machine: str, shown: Shown) -> str:
    """PATH in a box: the Python of Podyard, what the machine has and the box sees, and the usual
    folders."""
    kept = [
        entry
        for entry in machine.split(os.pathsep)
        if entry.startswith("/") and shown.covers(entry)
    ]
    return os.pathsep.join(dict.fromkeys([f"{shown.prefix}/bin", *kept, *PATH.split(os.pathsep)]))


def processes_max(cores: int) -> int:
    """Of one box."""
    return PROCESSES_MAX + PROCESSES_PER_CORE_MAX * cores


def limits(
    memory_bytes: int, cores: int, pid_max: int, *, version: int
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """(of all boxes of an agent together, of each box): controller -> file -> value, for cgroups of
    a version. `pid_max`: how many processes the machine may have."""
    most, together_most = processes_max(cores), int(pid_max * YARD_PROCESSES_SHARE_MAX)
    memory = "memory.max" if version == 2 else "memory.limit_in_bytes"
    cpu = ("cpu.weight", CPU_WEIGHT) if version == 2 else ("cpu.shares", CPU_WEIGHT * 1024 // 100)
    together = {
        "cpu": dict([cpu]),
        "memory": {memory: int(memory_bytes * YARD_MEMORY_SHARE_MAX)},
        "pids": {"pids.max": together_most},
    }
    each = {
        "cpu": {},
        "memory": {memory: int(memory_bytes * MEMORY_SHARE_MAX)},
        "pids": {"pids.max": most},
    }
    return together, each


def _layer(path: str) -> str:
    return path.strip("/").replace("/", "-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
