"""The files of published data sets, and the addresses from which Keras and torchvision take them.

Sources: keras/src/datasets and torchvision/datasets, with their MD5 sums.
"""

from __future__ import annotations

from typing import NamedTuple

FOLDER_VARIABLE = "PODYARD_DATASET_MIRROR"  # the folder, in a program's environment
FOLDER = "mirror"  # its name among the data sets of the platform
FOLDER_MODE = 0o755  # programs on nodes, which run as other users, read it
_IMAGES = "images-idx3-ubyte.gz"
_LABELS = "labels-idx1-ubyte.gz"


class PublishedSet(NamedTuple):
    """`files`: name -> MD5 of the published file. `sources`: beginnings of addresses of its
    files."""

    name: str
    title: str
    files: dict[str, str]
    sources: tuple[str, ...]


_KERAS = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
SETS = (
    PublishedSet(
        "mnist",
        "keras.datasets.mnist (mnist.npz), torchvision MNIST (*.gz)",
        {
            "mnist.npz": "8a61469f7ea1b51cbae51d4f78837e45",
            f"train-{_IMAGES}": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            f"train-{_LABELS}": "d53e105ee54ea40749a09fcbcd1e9432",
            f"t10k-{_IMAGES}": "9fb629c4189551a2d022fa330f9573f3",
            f"t10k-{_LABELS}": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        (
            f"{_KERAS}mnist.npz",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
    ),
    PublishedSet(
        "fashion_mnist",
        "keras.datasets.fashion_mnist, torchvision FashionMNIST",
        {
            f"train-{_IMAGES}": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            f"train-{_LABELS}": "25c81989df183df01b3e8a0aad5dffbe",
            f"t10k-{_IMAGES}": "bef4ecab320f06d8554ea6380940ec79",
            f"t10k-{_LABELS}": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        (
            f"{_KERAS}train-",
            f"{_KERAS}t10k-",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
    PublishedSet(
        "cifar10",
        "keras.datasets.cifar10, torchvision CIFAR10",
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python",),
    ),
)


class PublishedFile(NamedTuple):
    """A file of a set, as it lies in the folder: `<set>/<file>`."""

    set_name: str
    name: str


def file_of(url: str) -> PublishedFile | None:
    """Return the file that an address leads to, None for any other address."""
    name = url.rpartition("/")[2]
    for one in SETS:
        if name in one.files and url.startswith(one.sources):
            return PublishedFile(one.name, name)
    return None
