"""Batches of programs that are drawn by a number: the families of the public set with other sizes,
ways to split and optimizers. A number that nobody has tried is a blind batch: `python -m
benchmarks.corpus.blind --drawn 7`."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from benchmarks.corpus import others, parallel, vision
from benchmarks.corpus.language import Size, Transformer
from benchmarks.corpus.layout import BF16, F32, ONE, Layout, Made

LAYOUTS = {
    "one": ONE,
    "data8": Layout((("data", 8),), ("data",)),
    "fsdp8": Layout((("data", 8),), ("fsdp",)),
    "tensor8": Layout((("model", 8),), ("tensor",)),
    "data2-tensor4": Layout((("data", 2), ("model", 4)), ("data", "tensor")),
    "fsdp4-tensor2": Layout((("data", 4), ("model", 2)), ("fsdp", "tensor")),
    "data4-tensor2-sequence": Layout((("data", 4), ("model", 2)), ("data", "tensor", "sequence")),
    "fsdp4-tensor4": Layout((("data", 4), ("model", 4)), ("fsdp", "tensor")),
}


def _size(draw: random.Random, experts: int = 0) -> Size:
    pick = draw.choice
    width, head = pick((384, 512, 768, 1024, 1280)), pick((64, 128))
    heads = width // head
    heads += heads % 2 * 2 if heads % 4 else 0
    return Size(
        width=width,
        layers=pick((2, 3, 4)),
        heads=max(8, heads // 8 * 8),
        inner=pick((2, 3, 4)) * width,
        vocabulary=pick((4096, 10240, 16384, 32768, 50304)),
        tokens=pick((128, 192, 256, 512, 1024)),
        groups=pick((0, 8)),
        experts=experts,
        head=head,
    )


def language(draw: random.Random) -> dict[str, Callable[[], Made]]:
    made: dict[str, Callable[[], Made]] = {}
    for number, place in enumerate(("one", "one", "one", *LAYOUTS)):
        llama, scan, batch = bool(number % 2), draw.random() < 0.4, draw.choice((8, 16))
        dtype: Any = BF16 if draw.random() < 0.4 else F32
        remat = scan and draw.random() < 0.5
        model = Transformer(
            _size(draw), LAYOUTS[place], llama=llama, scan=scan, remat=remat, dtype=dtype
        )
        optimizer = draw.choice(("sgd", "momentum", "adam"))
        kind = f"{'llama' if llama else 'gpt'}{'-scan' if scan else ''}{'-remat' if remat else ''}"
        made[f"{number}-{kind}-train-{optimizer}-{place}"] = functools.partial(
            model.training, batch, optimizer
        )
    for number, place in enumerate(("one", "data8", "tensor8", "data2-tensor4")):
        model = Transformer(_size(draw), LAYOUTS[place], llama=True, dtype=BF16, scan=number == 1)
        batch, room = draw.choice((8, 16, 32)), draw.choice((512, 1024, 2048))
        made[f"{number}-decode-{place}"] = functools.partial(model.decode, batch, room)
    model = Transformer(_size(draw), LAYOUTS["tensor8"], llama=True, dtype=BF16)
    made["prefill-tensor8"] = lambda: model.decode(4, 1024, 256)
    mixture = Transformer(_size(draw, 8), Layout((("expert", 8),), ("data", "expert")))
    made["mixture-train-expert8"] = lambda: mixture.training(16, "sgd")
    return made


def _images(draw: random.Random) -> dict[str, Callable[[], Made]]:
    pick = draw.choice
    widths = pick(((32, 64, 128), (64, 128, 256), (48, 160, 320), (96, 192)))
    split = pick(("data8", "fsdp8"))
    plain = vision.Stages("plain", widths, pick((1, 2)), pick((16, 32, 64)), pick((64, 96, 128)))
    shared = vision.Stages(
        "plain", (64, pick((128, 192))), 2, pick((64, 128)), 64, layout=LAYOUTS["data8"]
    )
    apart = vision.Stages("depthwise", (pick((24, 32, 40)), pick((64, 80))), 2, 32, pick((64, 96)))
    wide = vision.Stages("next", (pick((64, 96, 160)), 192), 2, pick((8, 16)), 128, (4, 4))
    vit = vision.Vit(pick((256, 320, 768)), pick((3, 5)), 4, pick((16, 32)), pick((128, 160)), 16)
    vits = vision.Vit(pick((256, 384)), 4, 4, 64, pick((128, 192)), 16, LAYOUTS[split])
    noise = vision.UNet(pick((32, 48, 80)), pick((2, 3)), pick((8, 16)), 32, pick((3, 4)))
    vgg = functools.partial(
        vision.vgg, pick(((32, 64), (64, 128, 128))), pick((64, 128)), pick((32, 64))
    )
    code = functools.partial(vision.autoencoder, pick((16, 32)), pick((32, 64)), pick((24, 64)))
    return {
        "resnet-train": functools.partial(plain.training, pick(("momentum", "adam"))),
        "resnet-train-data8": shared.training,
        "mobilenet-forward": apart.forward,
        "convnext-forward": wide.forward,
        "vit-train": vit.training,
        f"vit-train-{split}": vits.training,
        "unet-train": noise.training,
        "vgg-train": vgg,
        "autoencoder-train": code,
    }


def _others(draw: random.Random) -> dict[str, Callable[[], Made]]:
    pick = draw.choice
    rows = [pick((1000, 8000, 60000, 250000)) for _ in range(pick((3, 5, 8)))]
    tall, wide = pick((768, 1024, 2560)), pick((2048, 3072, 5120))
    place = pick(("data8", "data2-tensor4", "fsdp8"))
    return {
        "dlrm-train": functools.partial(others.dlrm, rows, pick((64, 128)), pick((1024, 4096))),
        "dlrm-train-data8": functools.partial(
            others.dlrm, rows, 128, 4096, "sgd", LAYOUTS["data8"]
        ),
        "lstm-train": functools.partial(
            others.recurrent, "lstm", pick((256, 640)), pick((24, 80)), pick((16, 48))
        ),
        "gru-forward": functools.partial(
            others.recurrent, "gru", pick((384, 512)), 64, pick((32, 64)), forward=True
        ),
        "state-space-forward": functools.partial(
            others.state_space, pick((128, 512)), 16, pick((256, 1024)), 2
        ),
        "adam-tree": functools.partial(
            others.adam_tree, [(tall, wide), (wide, tall), (tall,), (32000, tall)]
        ),
        "lion": functools.partial(others.lion, [(wide, tall), (tall, wide), (wide,)]),
        "adafactor": functools.partial(others.adafactor, [(tall, wide), (wide, 1024)]),
        f"perceptron-train-{place}": functools.partial(
            others.perceptron,
            (tall, wide, wide, 256),
            pick((1024, 4096)),
            pick(("sgd", "adam")),
            LAYOUTS[place],
        ),
        "table-rows": functools.partial(
            others.rows_of_table, pick((20000, 90000)), pick((256, 1024)), 4096
        ),
        "streamed-attention": functools.partial(
            others.streamed_attention, 2, pick((4, 8)), pick((1024, 4096)), 128, 512
        ),
        "ring-attention-8": functools.partial(
            parallel.ring_attention, 8, 1, pick((8, 16)), pick((2048, 8192)), 128
        ),
        "pipeline-8-gradient": functools.partial(
            parallel.pipeline, 8, pick((256, 768)), 8, 8, gradient=True
        ),
    }


def programs(number: int) -> dict[str, Callable[[], Made]]:
    """The batch of a number, by name. Everything is drawn here, so that a program is the same each
    time it is made."""
    draw = random.Random(number)
    return language(draw) | _images(draw) | _others(draw)
