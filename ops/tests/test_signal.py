# SPDX-License-Identifier: Apache-2.0
"""DFT, STFT, windows, MelWeightMatrix and Det beside ONNX Runtime, the reference evaluator or numpy."""

import numpy as np
import pytest
from onnx import TensorProto
from ort_compare import check, check_rejected, infer, run_tessera

RNG = np.random.default_rng(41)
TOLERANCE = dict(rtol=1e-5, atol=1e-5)


def pairs(z, dtype):
    return np.stack([z.real, z.imag], -1).astype(dtype)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dft(opset, dtype):
    for parts in (1, 2):
        x = RNG.standard_normal((2, 6, 5, parts)).astype(dtype)
        z = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
        for axis in (1, 2, -2, -3):
            for length in (None, 3, 6, 8):
                for inverse in (0, 1):
                    for onesided in (0, 1):
                        if onesided and (inverse or parts == 2):
                            continue
                        place = axis if axis > 0 else axis + 1
                        whole = (np.fft.ifft if inverse else np.fft.fft)(z.astype(np.complex128), length, axis=place)
                        want = np.take(whole, range(whole.shape[place] // 2 + 1), place) if onesided else whole
                        count = None if length is None else np.array(length, np.int64)
                        operands = (
                            [x, count, np.array(axis, np.int64)] if opset >= 20 else [x, count] if length else [x]
                        )
                        attributes = {"inverse": inverse, "onesided": onesided} | ({"axis": axis} if opset < 20 else {})
                        check(
                            "DFT",
                            operands,
                            opset=opset,
                            attributes=attributes,
                            expected=[pairs(want, dtype)],
                            **TOLERANCE,
                        )
                        if (length is None or length == 8) and axis != -3:
                            check("DFT", operands, opset=opset, attributes=attributes, **TOLERANCE)
    half = run_tessera("DFT", [np.ones((1, 4, 1), np.float16)], opset=opset)[0]
    assert half.dtype == np.float16 and half[0, :, 0].tolist() == [4, 0, 0, 0]


def test_dft_errors():
    x = np.zeros((1, 4, 2), np.float32)
    check_rejected("DFT", [x], opset=17, attributes={"onesided": 1}, match="real input")
    check_rejected("DFT", [x[..., :1]], opset=17, attributes={"onesided": 1, "inverse": 1}, match="complex input")
    check_rejected("DFT", [np.zeros((1, 4, 3), np.float32)], opset=17, match="last axis")
    check_rejected("DFT", [x], opset=17, attributes={"axis": 2}, match="last axis")
    check_rejected("DFT", [x, np.array(0, np.int64)], opset=17, match="below 1")
    check_rejected("DFT", [x, np.array(2**61, np.int64)], opset=17, match="exceeds")
    assert infer("DFT", [("float32", [2, -1, 1]), ("int64", [])], opset=20)[0][1] == [2, -1, 2]
    assert infer("DFT", [("float32", [2, 4, 1]), None, ("int64", [])], opset=20)[0][1] == [-1, -1, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stft(dtype):
    signal = RNG.standard_normal((2, 30)).astype(dtype)
    step, length, window = np.array(4, np.int64), np.array(8, np.int64), RNG.uniform(0, 1, 8).astype(dtype)
    frames = np.stack([signal[:, s : s + 8] for s in range(0, 23, 4)], 1).astype(np.float64)
    for x in (signal, signal[..., None]):
        for onesided in (0, 1):
            for operands, factor in [
                ([x, step, window], window),
                ([x, step, window, length], window),
                ([x, step, None, length], 1.0),
            ]:
                want = np.fft.fft(frames * factor)[..., : 5 if onesided else 8]
                check("STFT", operands, attributes={"onesided": onesided}, expected=[pairs(want, dtype)], **TOLERANCE)
            if x.ndim == 3:
                check("STFT", [x, step, window, length], attributes={"onesided": onesided}, **TOLERANCE)
    both = RNG.standard_normal((1, 12, 2)).astype(dtype)
    want = np.fft.fft(np.stack([both[:, s : s + 8, 0] + 1j * both[:, s : s + 8, 1] for s in (0, 4)], 1))
    check("STFT", [both, step, None, length], attributes={"onesided": 0}, expected=[pairs(want, dtype)], **TOLERANCE)
    check_rejected("STFT", [both, step, None, length], match="real signal")
    check_rejected("STFT", [signal, step, None, np.array(31, np.int64)], match="exceeds the signal")
    check_rejected("STFT", [signal, step], match="window or a frame_length")
    check_rejected("STFT", [signal, np.array(0, np.int64), window], match="frame_step")


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op):
    for size in (2, 5, 16, 400):
        for periodic in (0, 1):
            for kind in (TensorProto.FLOAT, TensorProto.DOUBLE):
                check(
                    op,
                    [np.array(size, np.int64)],
                    attributes={"periodic": periodic, "output_datatype": kind},
                    rtol=0,
                    atol=2e-6,
                )
    assert run_tessera(op, [np.array(0, np.int64)])[0].shape == (0,)
    assert (
        run_tessera(op, [np.array(8, np.int32)], attributes={"output_datatype": TensorProto.FLOAT16})[0].dtype
        == np.float16
    )
    check_rejected(op, [np.array(-1, np.int64)], match="below 0")
    check_rejected(
        op, [np.array(4, np.int64)], attributes={"output_datatype": TensorProto.STRING}, match="no numeric type"
    )


def test_mel_weights():
    for mels, length, rate, low, high in [
        (8, 64, 8000, 0.0, 4000.0),
        (20, 256, 16000, 20.0, 7600.0),
        (3, 16, 8192, 0.0, 4096.0),
    ]:
        operands = [
            np.array(mels, np.int64),
            np.array(length, np.int64),
            np.array(rate, np.int64),
            np.array(low, np.float32),
            np.array(high, np.float32),
        ]
        check("MelWeightMatrix", operands, rtol=1e-5, atol=1e-6)
    operands[4] = np.array(9e3, np.float32)
    with pytest.raises(Exception, match="outside the spectrum"):
        run_tessera("MelWeightMatrix", operands)


def test_det():
    for shape in [(1, 1), (3, 3), (2, 3, 4, 4), (2, 0, 0)]:
        x = RNG.standard_normal(shape).astype(np.float32)
        want = np.linalg.det(x.astype(np.float64)).astype(np.float32) if x.size else np.ones(shape[:-2], np.float32)
        check("Det", [x], opset=11, expected=[want], rtol=1e-4, atol=1e-5)
        if x.size:
            check("Det", [x], opset=11, rtol=1e-4, atol=1e-5)
    check("Det", [np.array([[0, 2, 1], [0, 4, 2], [0, 1, 1]], np.float64)], opset=22, expected=[np.float64(0)])
    check("Det", [np.array([[0, 1], [1, 0]], np.float64)], opset=22, expected=[np.float64(-1)])
    check_rejected("Det", [np.zeros((2, 3), np.float32)], opset=11, match="square")
