"""Filters of system calls, run as the kernel runs them."""

from __future__ import annotations

import struct

import pytest

from podyard.workers.box import calls as box_calls

MACHINES = box_calls._MACHINES
ALLOWED, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def answer(text: bytes, machine: int, call: int, argument: int = 0) -> int:
    """Return what a filter says: classic BPF, as far as seccomp has it."""
    data = struct.pack("=iIQ6Q", call, machine, 0, argument, 0, 0, 0, 0, 0)
    steps = [struct.unpack_from("HBBI", text, place) for place in range(0, len(text), 8)]
    place = loaded = 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            place += if_true if holds else if_false


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_box_is_refused_what_a_container_is(name: str) -> None:
    machine = MACHINES[name]
    text = box_calls.box_filter(machine)
    refused = {
        call
        for call in range(500)
        if answer(text, machine.number, call, 2) not in (ALLOWED, ENOSYS)
    }
    first = machine.first_key
    assert refused == {*machine.refused, first, first + 1, first + 2}
    assert answer(text, machine.number, 435) == ENOSYS, "clone3: glibc takes clone then"
    assert answer(text, machine.number ^ 1, 0) == EPERM
    assert answer(text, machine.number, 0x40000000) == EPERM


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_arguments_of_clone_and_socket_decide(name: str) -> None:
    machine = MACHINES[name]
    text = box_calls.box_filter(machine)
    threads, new_user, new_mount = 0x3D0F00, 0x10000000 | 17, 0x20000 | 17
    assert answer(text, machine.number, machine.clone, threads) == ALLOWED
    assert {
        answer(text, machine.number, machine.clone, flags) for flags in (new_user, new_mount)
    } == {EPERM}
    families = {
        family: answer(text, machine.number, machine.socket, family) for family in range(46)
    }
    assert {family for family, said in families.items() if said != ALLOWED} == {17, 38, 40}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_without_root_only_keys_are_refused(name: str) -> None:
    machine = MACHINES[name]
    text = box_calls.keys_filter(machine)
    refused = {call for call in range(500) if answer(text, machine.number, call) != ALLOWED}
    assert refused == {machine.first_key + place for place in range(3)}
    assert answer(text, machine.number ^ 1, 0) == EPERM
