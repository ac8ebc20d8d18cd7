"""The fifth blind batch: the families of the public set with sizes, ways to split and optimizers that were drawn once.
See `benchmarks.corpus.blind`."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from benchmarks.corpus import others, vision
from benchmarks.corpus.language import Size, Transformer
from benchmarks.corpus.layout import BF16, ONE, Layout, Made

_DRAW = random.Random(5)  # its numbers are the batch: another seed is another batch
_LAYOUTS = {
    "one": ONE,
    "data8": Layout((("data", 8),), ("data",)),
    "fsdp8": Layout((("data", 8),), ("fsdp",)),
    "tensor8": Layout((("model", 8),), ("tensor",)),
    "data2-tensor4": Layout((("data", 2), ("model", 4)), ("data", "tensor")),
    "fsdp4-tensor2": Layout((("data", 4), ("model", 2)), ("fsdp", "tensor")),
    "data4-tensor2-sequence": Layout((("data", 4), ("model", 2)), ("data", "tensor", "sequence")),
    "fsdp4-tensor4": Layout((("data", 4), ("model", 4)), ("fsdp", "tensor")),
}


def _size(experts: int = 0) -> Size:
    pick = _DRAW.choice
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


def _language() -> dict[str, Callable[[], Made]]:
    made: dict[str, Callable[[], Made]] = {}
    for number, place in enumerate(("one", "one", "one", *_LAYOUTS)):
        llama, scan, batch = bool(number % 2), _DRAW.random() < 0.4, _DRAW.choice((8, 16))
        given: dict[str, Any] = {"llama": llama, "scan": scan, "dtype": BF16 if _DRAW.random() < 0.4 else None}
        given["remat"] = scan and _DRAW.random() < 0.5
        model = Transformer(_size(), _LAYOUTS[place], **{name: one for name, one in given.items() if one is not None})
        optimizer = _DRAW.choice(("sgd", "momentum", "adam"))
        kind = f"{'llama' if llama else 'gpt'}{'-scan' if scan else ''}{'-remat' if given['remat'] else ''}"
        made[f"{number}-{kind}-train-{optimizer}-{place}"] = functools.partial(model.training, batch, optimizer)
    for number, place in enumerate(("one", "data8", "tensor8", "data2-tensor4")):
        model = Transformer(_size(), _LAYOUTS[place], llama=True, dtype=BF16, scan=number == 1)
        batch, room = _DRAW.choice((8, 16, 32)), _DRAW.choice((512, 1024, 2048))
        made[f"{number}-decode-{place}"] = functools.partial(model.decode, batch, room)
    model = Transformer(_size(), _LAYOUTS["tensor8"], llama=True, dtype=BF16)
    made["prefill-tensor8"] = lambda: model.decode(4, 1024, 256)
    mixture = Transformer(_size(8), Layout((("expert", 8),), ("data", "expert")))
    made["mixture-train-expert8"] = lambda: mixture.training(16, "sgd")
    return made


def _images() -> dict[str, Callable[[], Made]]:
    pick = _DRAW.choice
    data = _LAYOUTS["data8"]
    plain = vision.Stages("plain", (64, 192, 320), 2, pick((32, 48)), 96)
    split = vision.Stages("plain", (96, 160), 2, 128, 64, layout=data)
    apart = vision.Stages("depthwise", (48, 96), 2, 32, pick((80, 112)))
    wide = vision.Stages("next", (128, 256), 2, 16, 112, (4, 4))
    vit = vision.Vit(pick((512, 640)), 4, 8, pick((24, 32)))
    vits = vision.Vit(512, 6, 8, 64, 160, 16, _LAYOUTS["fsdp8"])
    noise = vision.UNet(96, 2, pick((8, 12)), 32)
    return {
        "resnet-train": plain.training,
        "resnet-train-data8": split.training,
        "mobilenet-forward": apart.forward,
        "convnext-train": lambda: wide.training("adam"),
        "vit-train": vit.training,
        "vit-train-fsdp8": vits.training,
        "unet-forward": noise.forward,
        "vgg-train": lambda: vision.vgg((48, 96, 192), 96, 48),
        "autoencoder-train": lambda: vision.autoencoder(24, 96, 48),
    }


def _others() -> dict[str, Callable[[], Made]]:
    pick = _DRAW.choice
    return {
        "dlrm-train": lambda: others.dlrm([30000, 7000, 120000, 900, 15000], 128, 3072),
        "dlrm-train-data8": lambda: others.dlrm([25000] * 6, 128, 4096, "sgd", _LAYOUTS["data8"]),
        "lstm-train": lambda: others.recurrent("lstm", 384, 48, 64),
        "gru-forward": lambda: others.recurrent("gru", 768, 96, 32, forward=True),
        "state-space-forward": lambda: others.state_space(384, 8, 768, 4),
        "adam-tree": lambda: others.adam_tree([(768, 3072), (3072, 768), (768,), (50304, 768)]),
        "lion-fsdp8": lambda: others.lion([(4096, 1536), (1536, 4096), (4096,)], _LAYOUTS["fsdp8"]),
        "perceptron-train-data2-tensor4": lambda: others.perceptron(
            (1536, 6144, 1536, 512), pick((2048, 3072)), "adam", _LAYOUTS["data2-tensor4"]
        ),
        "streamed-attention": lambda: others.streamed_attention(4, 8, 2048, 128, 256),
    }


PROGRAMS: dict[str, Callable[[], Made]] = _language() | _images() | _others()
