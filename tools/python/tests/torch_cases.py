"""Arguments for every operation of sinter.torch's table: name to a list of calls."""
import torch

F32 = torch.float32


def t(*dim):
    return torch.randn(*dim)


def p(*dim):
    return torch.rand(*dim) + 0.5


def b(*dim):
    return torch.rand(*dim) > 0.5


def call(*args, **kwargs):
    return args, kwargs


_pairs = [call(t(3, 5), t(3, 5)), call(t(3, 1, 5), t(4, 1)), call(t(()), t(2, 3))]
_positive = [call(p(3, 5))]
_one = [call(t(3, 5)), call(t(2, 7, 3).transpose(0, 2)), call(t(()))]
_compared = [call(torch.tensor([1., 2, 3, 2]), torch.tensor([2., 2, 2, 1])),
             call(torch.arange(6).view(2, 3), torch.tensor([1, 4, 2]))]
_signed = [call(3 * t(3, 5)), call(torch.tensor([0.0, -0.0, 2.5, -2.5, float("inf"), float("-inf"),
                                                 float("nan"), -0.5, 1e30]))]
_small = torch.tensor([1e-9, -1e-9, 3e-4, -2e-5, 0.0, -1.0, -0.75, 1.5, -30.0, float("inf"),
                       float("-inf"), float("nan")])
_far = torch.tensor([89.0, -88.9, 3e19, -2e25, 1e-30, 1e38, 70.0, -20.0])
_whole = torch.arange(40) * 0.1
_holes = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 3.0, float("nan")], [0.0, float("nan"), 5.0]])
_to_number = [call(torch.tensor([1., 2, 3]), 2), call(torch.arange(5), 3)]
_bools = [call(b(3, 4), b(3, 4)), call(b(3, 1), b(4))]
_x, _w = t(2, 4, 6, 5), t(6, 2, 3, 3)
_window = ([2, 1], [1, 0], [1, 1], False, [0, 0], 2)
_y = torch.ops.aten.convolution(_x, _w, None, *_window)


def _statistics(x, axes, shape):
    mean = x.mean(axes, keepdim=True)
    return mean.view(shape), (x.var(axes, unbiased=False, keepdim=True) + 1e-5).rsqrt().view(shape)


_norm = t(2, 3, 8) + 0.5
_mean, _rstd = _statistics(_norm, (2,), (2, 3, 1))
_image = t(3, 4, 5, 2) * 2 + 1
_image_mean, _image_rstd = _statistics(_image, (0, 2, 3), (4,))
_group_mean, _group_rstd = _statistics(_image.view(3, 2, 20), (2,), (3, 2))
_soft = torch.softmax(t(3, 7), -1)
_classes = torch.tensor([3, 0, 6, 3, 1])
_map = torch.randint(0, 7, (2, 5, 3))

CASES = {
    **{f"aten.{name}.default": _one for name in (
        "abs", "ceil", "cos", "erf", "exp", "floor", "neg", "relu", "round", "sigmoid", "silu", "sin",
        "tan", "tanh", "clone", "leaky_relu", "zeros_like", "ones_like", "prod")},
    **{f"aten.{name}.default": [*_one, call(_small), call(_far)] for name in (
        "asinh", "cosh", "sinh")},
    **{f"aten.{name}.default": [call(torch.rand(3, 5) * 2 - 1), call(_small), call(-_small)]
       for name in ("acos", "asin", "atanh")},
    "aten.acosh.default": [call(t(3, 5).abs() + 1), call(_small.abs() + 1), call(_far.abs()),
                           call(-_small)],
    "aten.hypot.default": [*_pairs, call(_far, _far.flip(0)), call(_small, torch.zeros(12))],
    "aten.copysign.Tensor": [*_pairs, call(t(4), torch.tensor([0.0, -0.0, 2.0, -3.0]))],
    "aten.copysign.Scalar": [call(t(4), -2.0), call(t(4), -0.0)],
    "aten.fmax.default": [*_pairs, call(_small, _small.flip(0))],
    "aten.fmin.default": [*_pairs, call(_small, _small.flip(0))],
    "aten.div.Tensor_mode": [call(9 * t(3, 5), t(5), rounding_mode=mode) for mode in (
        None, "trunc", "floor")] + [call(_whole, torch.tensor(0.1), rounding_mode="floor"),
                                    call(_small, _small.flip(0), rounding_mode="floor")],
    "aten.div.Scalar_mode": [call(9 * t(9), -0.7, rounding_mode="floor")],
    "aten.round.decimals": [call(t(9), decimals=1), call(300 * t(9), decimals=-2)],
    "aten.prod.dim_int": [call(t(3, 4), 1), call(t(3, 4), -2, True)],
    **{f"aten.{name}.dim": [call(t(3, 4, 5), 1), call(t(3, 9).round(), -1, True),
                            call(_holes.bfloat16(), 0), call(t(()), 0)] for name in ("max", "min")},
    **{f"aten.arg{name}.default": [call(t(3, 4, 5)), call(t(3, 9).round(), -1, True),
                                   call(_holes.double(), 0)] for name in ("max", "min")},
    "aten.scatter.src": [call(t(3, 4, 5), 1, torch.randint(0, 4, (3, 1, 5)), t(3, 1, 5)),
                         call(t(3, 4).bfloat16(), -1, torch.randint(0, 4, (3, 1)),
                              t(3, 1).bfloat16())],
    "aten.scatter.value": [call(t(3, 4), 0, torch.randint(0, 3, (1, 4)), 2.5)],
    "aten.avg_pool3d.default": [call(t(2, 3, 4, 6, 7), [2, 2, 3], [], [1, 0, 1]),
                                call(t(3, 4, 6, 6), [3], [1], [1], False, False)],
    "aten.avg_pool3d_backward.default": [
        call(t(2, 3, 3, 3, 3), t(2, 3, 4, 6, 7), [2, 2, 3], [], [1, 0, 1], False, True, None)],
    "aten.elu.default": [*_one, call(_small), call(_small, 1.67, 1.05), call(_small, 0.7, 1, 1 / 0.7)],
    "aten.log1p.default": [call(t(3, 5).abs()), call(torch.tensor(
        [1e-9, -1e-9, 3e-4, -2e-5, 0.0, -1.0, -0.75, 1e30, float("inf"), float("nan"), -2.0]))],
    **{f"aten.{name}.default": _signed for name in ("isinf", "isnan", "sgn", "sign", "trunc")},
    **{f"aten.{name}.default": [*_one, call(_small)] for name in ("atan", "exp2", "expm1")},
    **{f"aten.{name}.default": [*_positive, call(_small.abs())] for name in ("log10", "log2")},
    **{f"aten.{name}.default": _positive for name in ("log", "reciprocal", "rsqrt", "sqrt")},
    **{f"aten.{name}.{kind}": arguments for name in ("eq", "ne", "gt", "ge", "lt", "le")
       for kind, arguments in (("Tensor", _compared), ("Scalar", _to_number))},
    **{f"aten.{name}": _bools for name in (
        "logical_and.default", "logical_or.default", "logical_xor.default", "bitwise_and.Tensor",
        "bitwise_or.Tensor", "bitwise_xor.Tensor")},
    **{f"aten.{name}.default": [call(b(3, 4))] for name in ("logical_not", "bitwise_not")},
    "aten.mul.Tensor": [*_pairs, *_bools], "aten.div.Tensor": [call(t(3, 5), p(5)), call(t(4), 3)],
    "aten.mul.Scalar": [call(t(4), 3)], "aten.div.Scalar": [call(t(4), 3)],
    "aten.maximum.default": _pairs, "aten.minimum.default": _pairs, "aten.atan2.default": _pairs,
    "aten.remainder.Scalar": [call(3 * t(9), 0.7), call(3 * t(9), -0.7)],
    "aten.remainder.Tensor": [call(torch.tensor([5.0, -5, 5, -5, 6, -6]),
                                   torch.tensor([3.0, 3, -3, -3, 3, 3]))],
    "aten.fmod.Tensor": [call(t(9), p(9))], "aten.fmod.Scalar": [call(t(9), 0.3)],
    "aten.add.Tensor": [*_pairs, call(t(4), t(4), alpha=0.5), call(t(4), 2.5)],
    "aten.add.Scalar": [call(t(4), 2.5)], "aten.sub.Scalar": [call(t(4), 2.5)],
    "aten.sub.Tensor": [*_pairs, call(t(4), t(4), alpha=3)],
    "aten.rsub.Tensor": _pairs, "aten.rsub.Scalar": [call(t(4), 1)],
    "aten.pow.Tensor_Scalar": [call(t(5), 2), call(p(5), 0.5), call(p(5), 1.7), call(t(5), 3)],
    "aten.pow.Tensor_Tensor": [call(p(5), t(5))], "aten.pow.Scalar": [call(2.0, t(5))],
    "aten.gelu.default": [call(t(3, 5)), call(t(3, 5), approximate="tanh")],
    "aten.gelu_backward.default": [call(t(3, 5), t(3, 5)),
                                   call(t(3, 5), t(3, 5), approximate="tanh")],
    "aten.silu_backward.default": [call(t(3, 5), t(3, 5))],
    "aten.sigmoid_backward.default": [call(t(3, 5), p(3, 5))],
    "aten.tanh_backward.default": [call(t(3, 5), p(3, 5))],
    "aten.threshold_backward.default": [call(t(9), t(9), 0), call(t(9), t(9), 0.5)],
    "aten.clamp.default": [call(t(9), -0.5, 0.5), call(t(9), None, 0.5), call(t(9), -0.5)],
    "aten.clamp.Tensor": [call(t(9), t(9) - 1, t(9) + 1)],
    "aten.clamp_min.default": [call(t(9), 0.1)], "aten.clamp_max.default": [call(t(9), 0.1)],
    "aten.clamp_min.Tensor": [call(t(9), t(9))], "aten.clamp_max.Tensor": [call(t(9), t(9))],
    "aten.hardtanh.default": [call(3 * t(9)), call(t(9), -0.2, 0.3)],
    "aten.where.self": [call(b(3, 4), t(3, 4), t(4)), call(b(3, 1), t(()), t(3, 4))],
    "aten.where.ScalarOther": [call(b(3, 4), t(3, 4), 2.0)],
    "aten.where.ScalarSelf": [call(b(3, 4), 2.0, t(3, 4))],
    "aten.where.Scalar": [call(b(3, 4), True, False), call(b(3, 4), 2.0, 3.0)],
    "aten.masked_fill.Scalar": [call(t(3, 4), b(3, 4), float("-inf"))],
    "aten.masked_fill.Tensor": [call(t(3, 4), b(4), torch.tensor(2.0))],
    "aten._to_copy.default": [call(t(3, 4), dtype=torch.bfloat16), call(t(3, 4), dtype=torch.bool),
                              call(torch.arange(9), dtype=F32), call(b(5), dtype=F32),
                              call(_holes.nan_to_num() * 2.6 - 5, dtype=torch.int64),
                              call(torch.tensor([-3.5, 2.5]).bfloat16(), dtype=torch.int32)],
    "prims.convert_element_type.default": [call(t(3, 4), torch.float16)],
    "aten.alias.default": [call(t(3, 4))], "aten.detach.default": [call(t(3, 4))],
    "aten.view.default": [call(t(3, 4), [2, 6]), call(t(1, 1), []), call(t(()), [1, 1])],
    "aten._unsafe_view.default": [call(t(3, 4), [2, 6])],
    "aten.unsqueeze.default": [call(t(3, 4), 1), call(t(()), 0)],
    "aten.squeeze.default": [call(t(3, 1, 4, 1))], "aten.squeeze.dim": [call(t(3, 1, 4), 1)],
    "aten.squeeze.dims": [call(t(3, 1, 1), [1, 2])],
    "aten.permute.default": [call(t(2, 3, 4), [2, 0, 1]), call(t(2, 3), [-1, 0])],
    "aten.transpose.int": [call(t(2, 3, 4), 0, -1)], "aten.t.default": [call(t(2, 3)), call(t(3))],
    "aten.expand.default": [call(t(3, 1), [2, 3, 4]), call(t(3, 1), [-1, 4]), call(t(()), [2, 2])],
    "aten.slice.Tensor": [call(t(5, 4), 0, 1, 4), call(t(5, 4), 1, -3, 2**63 - 1),
                          call(t(7), 0, 0, 7, 2), call(t(5), 0, 4, 2)],
    "aten.select.int": [call(t(5, 4), 0, 2), call(t(5, 4), -1, -1), call(t(3), 0, 1)],
    "aten.cat.default": [call([t(2, 3), t(4, 3)]), call([t(2, 3), t(2, 1), t(2, 2)], -1),
                         call([t(0), t(2)])],
    "aten.constant_pad_nd.default": [call(t(3, 4), [1, 2], 0.5), call(t(3, 4), [0, -1, 2, 0]),
                                     call(t(3, 4), [-1, 1, 0, 0])],
    "aten.slice_backward.default": [call(t(2, 4), [5, 4], 0, 1, 3, 1),
                                    call(t(5, 2), [5, 4], -1, 2, 2**63 - 1, 1),
                                    call(t(2, 4), [6, 4], 0, 1, 5, 3), call(t(3), [7], 0, 0, 7, 3),
                                    call(t(2, 4), [2, 7], -1, 0, 2**63 - 1, 2)],
    "aten.copy.default": [call(t(3, 4), t(4)), call(t(3, 4).bfloat16(), t(3, 4)),
                          call(t(4, 3).t(), t(3, 1))],
    "aten.slice_scatter.default": [call(t(5, 4), t(2, 4), 0, 1, 3), call(t(5, 4), t(5, 4)),
                                   call(t(2, 7), t(2, 3), -1, -3, 2**63 - 1),
                                   call(t(2, 7), t(2, 7), 1, 0, 7), call(t(5), t(0), 0, 2, 2)],
    "aten.roll.default": [call(t(5, 4), [2, -1], [0, 1]), call(t(3, 4), [5]), call(t(3), [3], [-1]),
                          call(t(2, 4, 3), [-9], [1])],
    "aten.select_backward.default": [call(t(4), [5, 4], 0, -2)],
    "aten.full.default": [call([2, 3], 1.5, dtype=F32, device="cpu")],
    "aten.full_like.default": [call(t(2, 3), 7.0)], "aten.new_full.default": [call(t(2), [3], 2.0)],
    "aten.new_zeros.default": [call(t(2), [3])], "aten.new_ones.default": [call(t(2), [3])],
    "aten.zeros.default": [call([2, 3], dtype=F32, device="cpu")],
    "aten.ones.default": [call([2, 3], dtype=torch.bool, device="cpu")],
    "aten.scalar_tensor.default": [call(3.0, dtype=F32, device="cpu")],
    "aten.sum.default": [call(t(3, 4)), call(t(())), call(b(30, 40))],
    "aten.sum.dim_IntList": [call(b(3, 4, 5), [0, 2]), call(b(7, 900), [1], True),
                             call(t(3, 4, 5), [0, -1]), call(t(3, 4), [1], True), call(t(3), None)],
    "aten.mean.default": [call(t(3, 4))],
    "aten.mean.dim": [call(t(3, 4, 5), [1]), call(t(3, 4), [-1], True)],
    "aten.amax.default": [call(t(3, 4), [1]), call(t(3, 4))],
    "aten.max.default": [call(t(3, 4)), call(t(()))], "aten.min.default": [call(t(3, 4).half())],
    "aten.any.default": [call(b(3, 4)), call(torch.zeros(2, 2))],
    "aten.any.dim": [call(b(3, 4), 1), call(t(3, 4).relu().round(), 0, True)],
    "aten.any.dims": [call(b(3, 4, 2), [0, -1])],
    "aten.amin.default": [call(t(3, 4), [0], True)],
    "aten.var.correction": [call(t(3, 9), [1]), call(t(3, 9), None, correction=0)],
    "aten.var_mean.correction": [call(t(3, 9) + 3, [1], correction=0, keepdim=True)],
    "aten._softmax.default": [call(t(3, 7), -1, False), call(t(3, 4, 5), 1, False)],
    "aten._softmax_backward_data.default": [call(t(3, 7), _soft, 1, F32)],
    "aten._log_softmax.default": [call(t(3, 7), 1, False)],
    "aten._log_softmax_backward_data.default": [call(t(3, 7), _soft.log(), 1, F32)],
    "aten.mm.default": [call(t(5, 8), t(8, 3)), call(t(8, 5).t(), t(3, 8).t())],
    "aten.bmm.default": [call(t(2, 5, 8), t(2, 8, 3)), call(t(2, 5, 8), t(2, 3, 8).mT)],
    "aten.mv.default": [call(t(5, 8), t(8))], "aten.dot.default": [call(t(8), t(8))],
    "aten.addmv.default": [call(t(5), t(5, 8), t(8)), call(t(5), t(5, 8), t(8), beta=0.5, alpha=2),
                           call(t(1), t(5, 8), t(8), beta=0)],
    "aten.addmm.default": [call(t(3), t(5, 8), t(8, 3)), call(t(5, 3), t(5, 8), t(8, 3)),
                           call(t(5, 1), t(5, 8), t(8, 3), beta=0.5, alpha=2),
                           call(t(3), t(5, 8), t(8, 3), beta=0)],
    "aten.baddbmm.default": [call(t(2, 5, 3), t(2, 5, 8), t(2, 8, 3), alpha=0.3)],
    "aten.convolution.default": [
        call(_x, _w, None, *_window), call(_x, _w, t(6), *_window),
        call(t(2, 3, 9), t(4, 3, 3), t(4), [1], [2], [2], False, [0], 1),
        call(_x.to(memory_format=torch.channels_last), t(3, 4, 1, 1), None, [1, 1], [0, 0], [1, 1],
             False, [0, 0], 1),
        call(t(2, 4, 5, 5), t(4, 3, 3, 3), t(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1)],
    "aten.convolution_backward.default": [
        call(torch.randn_like(_y), _x, _w, [6], *_window, [True, True, True]),
        call(torch.randn_like(_y), _x, _w, [0], *_window, [False, True, False]),
        call(torch.randn_like(_y), _x, _w, [6], *_window, [False, True, True]),
        call(t(2, 3, 10, 10), t(2, 4, 5, 5), t(4, 3, 3, 3), [3], [2, 2], [1, 1], [1, 1], True,
             [1, 1], 1, [True, True, True])],
    "aten.avg_pool2d.default": [call(t(2, 3, 6, 7), [2, 3], [], [1, 1]),
                                call(t(3, 6, 6), [3], [1], [1], False, False)],
    "aten.avg_pool2d_backward.default": [
        call(t(2, 3, 4, 3), t(2, 3, 6, 7), [2, 3], [], [1, 1], False, True, None),
        call(t(3, 6, 6), t(3, 6, 6), [3], [1], [1], False, False, None)],
    "aten.nll_loss_forward.default": [
        call(t(5, 7), _classes, None, reduction, -100) for reduction in (0, 1, 2)] + [
        call(t(5, 7), _classes, None, 1, 3), call(t(7), torch.tensor(2), None, 1, -100),
        *(call(t(5, 7), _classes, p(7), reduction, 3) for reduction in (0, 1, 2))],
    "aten.nll_loss2d_forward.default": [
        call(t(2, 7, 5, 3), _map, weight, reduction, 3) for weight in (None, p(7))
        for reduction in (0, 1, 2)],
    "aten.nll_loss2d_backward.default": [
        call(t(2, 5, 3) if reduction == 0 else t(()), t(2, 7, 5, 3), _map, weight, reduction, -100,
             torch.tensor(30.0)) for weight in (None, p(7)) for reduction in (0, 1, 2)],
    "aten.nll_loss_backward.default": [
        call(t(5) if reduction == 0 else t(()), t(5, 7), _classes, None, reduction, ignored,
             torch.tensor(5.0 if ignored < 0 else 3.0))
        for reduction in (0, 1, 2) for ignored in (-100, 3)] + [
        call(t(()), t(5, 7), _classes, p(7), 1, 3, torch.tensor(2.5)),
        call(t(5), t(5, 7), _classes, p(7), 0, -100, torch.tensor(0.0))],
    "aten.arange.start_step": [call(0, 7, 1, dtype=F32, device="cpu"),
                               call(3, -8, -2, dtype=torch.bfloat16, device="cpu")],
    "aten.linalg_vector_norm.default": [call(t(3, 4)), call(t(3, 4), 1, [1]),
                                        call(t(3, 4), float("inf"), [0], True),
                                        call(t(3, 4), 3), call(t(3, 4), 0.5, [1], True)],
    "aten.native_layer_norm.default": [call(_norm, [8], t(8), t(8), 1e-5),
                                       call(_norm, [3, 8], None, None, 1e-5)],
    "aten.native_layer_norm_backward.default": [
        call(t(2, 3, 8), _norm, [8], _mean, _rstd, t(8), t(8), [True, True, True]),
        call(t(2, 3, 8), _norm, [8], _mean, _rstd, t(8), t(8), [False, True, True])],
    "aten.native_group_norm.default": [call(_image, t(4), t(4), 3, 4, 10, 2, 1e-5)],
    "aten.native_group_norm_backward.default": [
        call(torch.randn_like(_image), _image, _group_mean, _group_rstd, t(4), 3, 4, 10, 2,
             [True, True, True])],
    "aten._native_batch_norm_legit_functional.default": [
        call(_image, t(4), t(4), t(4), p(4), True, 0.1, 1e-5),
        call(t(9, 4), None, None, t(4), p(4), True, 0.1, 1e-5)],
    "aten._native_batch_norm_legit_no_training.default": [
        call(_image, t(4), t(4), t(4), p(4), 0.1, 1e-5)],
    "aten._native_batch_norm_legit.no_stats": [call(_image, t(4), t(4), True, 0.1, 1e-5),
                                               call(_image, None, None, True, 0.1, 1e-5)],
    "aten.native_batch_norm_backward.default": [
        call(torch.randn_like(_image), _image, t(4), t(4), p(4), _image_mean, _image_rstd, True,
             1e-5, [True, True, True]),
        call(torch.randn_like(_image), _image, t(4), t(4), p(4), None, None, False, 1e-5,
             [True, True, True])],
}

# PyTorch has no kernel of these on the CPU, Sinter gives not all results, or results are any
# numbers: others test them.
ELSEWHERE = {"aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
             "aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default",
             "aten._fused_rms_norm.default",
             "aten._fused_rms_norm_backward.default"}
