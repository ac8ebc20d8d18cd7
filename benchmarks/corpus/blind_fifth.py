"""The fifth blind batch: transformers that were drawn, and other families in sizes that were chosen
once. See `benchmarks.corpus.blind` and `drawn`."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.corpus import others, vision
from benchmarks.corpus.drawn import LAYOUTS, language
from benchmarks.corpus.layout import Made

_DRAW = random.Random(5)


def _images() -> dict[str, Callable[[], Made]]:
    pick = _DRAW.choice
    data = LAYOUTS["data8"]
    plain = vision.Stages("plain", (64, 192, 320), 2, pick((32, 48)), 96)
    split = vision.Stages("plain", (96, 160), 2, 128, 64, layout=data)
    apart = vision.Stages("depthwise", (48, 96), 2, 32, pick((80, 112)))
    wide = vision.Stages("next", (128, 256), 2, 16, 112, (4, 4))
    vit = vision.Vit(pick((512, 640)), 4, 8, pick((24, 32)))
    vits = vision.Vit(512, 6, 8, 64, 160, 16, LAYOUTS["fsdp8"])
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
    batch = _DRAW.choice((2048, 3072))
    return {
        "dlrm-train": lambda: others.dlrm([30000, 7000, 120000, 900, 15000], 128, 3072),
        "dlrm-train-data8": lambda: others.dlrm([25000] * 6, 128, 4096, "sgd", LAYOUTS["data8"]),
        "lstm-train": lambda: others.recurrent("lstm", 384, 48, 64),
        "gru-forward": lambda: others.recurrent("gru", 768, 96, 32, forward=True),
        "state-space-forward": lambda: others.state_space(384, 8, 768, 4),
        "adam-tree": lambda: others.adam_tree([(768, 3072), (3072, 768), (768,), (50304, 768)]),
        "lion-fsdp8": lambda: others.lion([(4096, 1536), (1536, 4096), (4096,)], LAYOUTS["fsdp8"]),
        "perceptron-train-data2-tensor4": lambda: others.perceptron(
            (1536, 6144, 1536, 512), batch, "adam", LAYOUTS["data2-tensor4"]
        ),
        "streamed-attention": lambda: others.streamed_attention(4, 8, 2048, 128, 256),
    }


PROGRAMS: dict[str, Callable[[], Made]] = language(_DRAW) | _images() | _others()
