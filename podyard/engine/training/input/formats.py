"""The formats of examples that can be read."""

from podyard.engine.training.input.cifar import read_cifar
from podyard.engine.training.input.idx import read_idx, read_idx_set
from podyard.engine.training.input.npz import read_npz
from podyard.engine.training.input.tfrecord import ExampleFeature, TfRecordReader, read_tfrecord

__all__ = [
    "ExampleFeature",
    "TfRecordReader",
    "read_cifar",
    "read_idx",
    "read_idx_set",
    "read_npz",
    "read_tfrecord",
]
