"""`reference_model.py LISTING.py INPUTS.npy LOGITS.npy`: the `model` that a listing of
docs/howto/reference-models.md makes of a checkpoint in the working folder."""

import os
import runpy
import sys

import numpy as np

if "import keras" in open(sys.argv[1], encoding="utf-8").read():  # noqa: PTH123, SIM115
    os.environ["KERAS_BACKEND"] = "jax"
model = runpy.run_path(sys.argv[1])["model"]
inputs = np.load(sys.argv[2])
if "KERAS_BACKEND" in os.environ:
    logits = np.asarray(model(inputs))
else:
    import torch

    with torch.no_grad():
        logits = model.eval()(torch.tensor(inputs)).logits.numpy()
np.save(sys.argv[3], logits)
