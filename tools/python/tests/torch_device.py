"""Where the tests of PyTorch run: on the CPU backend, with SINTER_TEST_TORCH=cuda on a GPU."""
import os

import torch

DEVICE = torch.device(os.environ.get("SINTER_TEST_TORCH", "cpu"))
WHERE = "cpu" if DEVICE.type == "cpu" else 0  # as Sinter calls it
# On a GPU PyTorch takes attention of f32 with shared heads apart; integers of its mask stay there.
MASK_OF_SHARED_HEADS = set() if DEVICE.type == "cpu" else {
    "aten.arange.start_step", "aten.sub.Tensor"}


def setUpModule():
    """What modules of tests import: their tensors are made on the device, and products of f32 are
    exact."""
    torch.backends.cudnn.allow_tf32 = False  # which is PyTorch's default for convolutions
    if DEVICE.type != "cpu":
        torch.set_default_device(DEVICE)


def tearDownModule():
    if DEVICE.type != "cpu":
        torch.set_default_device(None)
