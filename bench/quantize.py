# SPDX-License-Identifier: Apache-2.0
"""Float networks quantised three ways and measured in one run: as they are, by ONNX Runtime's default quantisation, and
by tessera.quantize with each engine. In: the float models and pictures beside the project, as far as they are there
(each missing one is named), and the digits of examples/. Out: one row for each network and way: accuracy or agreement
with float, distance of the outputs in dB, share of the products on the NPU, and cycles.

Calibration never sees the test pictures where other ones can be had. Those are crops of the two photographs inside
scikit-learn (for CIFAR-10, VWW, MobileNetV2 and the transformers) and scikit-learn's own digits, enlarged (for MNIST).
Detectors need objects in their calibration: half of the pictures with faces calibrate, the other half tests."""

import functools
import logging
import pathlib
import sys
import tempfile
import time

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
DIGITS = ROOT / "examples" / "digits"
CALIBRATION = 64
OBJECT_IOU = 0.9


# --- pictures
# -----------------------------------------------------------------------------------------------------------


@functools.cache
def photographs():
    """The two photographs inside scikit-learn as pictures of Pillow."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(array) for array in load_sample_images().images]


def crops(count, height, width, seed=0, pictures=None, least=0.1):
    """Seeded crops of the photographs, uint8 [count, height, width, 3]: from `least` to all of the picture's height."""
    rng = np.random.default_rng(seed)
    pictures = pictures or photographs()
    out = np.empty((count, height, width, 3), np.uint8)
    for k in range(count):
        picture = pictures[k % len(pictures)]
        h = int(picture.height * rng.uniform(least, 1))
        w = min(picture.width, max(1, h * width // height))
        left, top = rng.integers(0, picture.width - w + 1), rng.integers(0, picture.height - h + 1)
        part = picture.crop((left, top, left + w, top + h)).resize((width, height))
        out[k] = np.asarray(part)[:, ::-1] if rng.random() < 0.5 else np.asarray(part)
    return out


def digits_as_mnist(count, seed=0):
    """scikit-learn's digits of 8x8 in the middle of 28x28, uint8 [count, 28, 28]."""
    from PIL import Image
    from sklearn.datasets import load_digits

    images = load_digits().images
    chosen = np.random.default_rng(seed).permutation(len(images))[:count]
    out = np.zeros((count, 28, 28), np.uint8)
    for k, index in enumerate(chosen):
        small = Image.fromarray((images[index] * 255 / 16).astype(np.uint8))
        out[k, 4:24, 4:24] = np.asarray(small.resize((20, 20), Image.Resampling.BICUBIC))
    return out


def face_files():
    files = sorted((SHARED / "data" / "faces").glob("*.jpg"))
    if not files:
        raise FileNotFoundError("no ../shared/data/faces beside the project")
    return files


def faces(height, width, which=slice(None)):
    from PIL import Image

    return np.stack([np.asarray(Image.open(f).convert("RGB").resize((width, height))) for f in face_files()[which]])


def face_crops(count, height, width, which, seed=0):
    """Seeded crops of some of the pictures with faces, from half to all of their height, and each one whole."""
    from PIL import Image

    pictures = [Image.open(f).convert("RGB") for f in face_files()[which]]
    whole = faces(height, width, which)
    return np.concatenate([whole, crops(count - len(whole), height, width, seed, pictures, 0.5)])


def planes(pictures, scale=1.0, mean=0.0, std=1.0):
    """float32 [n, c, h, w] of uint8 [n, h, w, c]."""
    values = (pictures.astype(np.float32) * np.float32(scale) - np.float32(mean)) / np.float32(std)
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2)).astype(np.float32)


# --- objects
# -----------------------------------------------------------------------------------------------------------


def iou(a, b):
    """Of boxes [x0, y0, x1, y1] against [n, 4]."""
    low, high = np.maximum(a[:2], b[:, :2]), np.minimum(a[2:], b[:, 2:])
    inner = np.clip(high - low, 0, None).prod(1)
    return inner / (np.prod(a[2:] - a[:2]) + (b[:, 2:] - b[:, :2]).prod(1) - inner + 1e-9)


def suppress(boxes, scores, least, overlap=0.45):
    """Non-maximum suppression: boxes [n, 4] and scores [n] to the boxes that stay, best first."""
    order = [i for i in np.argsort(-scores) if scores[i] > least]
    kept = []
    while order:
        best = order.pop(0)
        kept.append(best)
        order = [i for i in order if iou(boxes[best], boxes[i][None])[0] < overlap]
    return boxes[kept], scores[kept]


def ultraface_objects(outputs):
    scores, boxes = outputs
    return suppress(boxes[0], scores[0][:, 1], 0.7)


def yunet_objects(outputs):
    boxes, scores = [], []
    for k, stride in enumerate((8, 16, 32)):
        cls, obj, box = outputs[k][0], outputs[3 + k][0], outputs[6 + k][0]
        side = 320 // stride
        y, x = np.divmod(np.arange(side * side), side)
        centre = np.stack([x, y], 1) * stride + box[:, :2] * stride
        size = np.exp(box[:, 2:]) * stride
        boxes.append(np.concatenate([centre - size / 2, centre + size / 2], 1))
        scores.append(np.sqrt(np.clip(cls[:, 0], 0, 1) * np.clip(obj[:, 0], 0, 1)))
    return suppress(np.concatenate(boxes), np.concatenate(scores), 0.6)


def yolox_objects(outputs):
    rows = outputs[0][0]
    grids, strides = [], []
    for stride in (8, 16, 32):
        y, x = np.divmod(np.arange((416 // stride) ** 2), 416 // stride)
        grids.append(np.stack([x, y], 1))
        strides.append(np.full((len(x), 1), stride))
    grid, stride = np.concatenate(grids), np.concatenate(strides)
    centre, size = (rows[:, :2] + grid) * stride, np.exp(rows[:, 2:4]) * stride
    scores = rows[:, 4] * rows[:, 5:].max(1)
    return suppress(np.concatenate([centre - size / 2, centre + size / 2], 1), scores, 0.3)


def same_objects(objects, real, other):
    """How many objects of the float model the other one finds too (IoU at least 0.9), and of how many."""
    found = total = 0
    for a, b in zip(real, other):
        expected, got = objects(a)[0], objects(b)[0]
        total += max(len(expected), len(got))
        found += sum(bool(len(got)) and iou(box, got).max() >= OBJECT_IOU for box in expected)
    return found, total


# --- networks
# ----------------------------------------------------------------------------------------------------------


class Network:
    """path; calibrate and test: arrays [n, ...] or lists of feeds; labels of the test pictures; objects: from a list of
    outputs to boxes and scores; told: what the pictures are."""

    def __init__(self, path, calibrate, test, told, *, labels=None, objects=None, classes=False):
        self.path, self.told, self.labels, self.objects, self.classes = path, told, labels, objects, classes
        graph = onnx.load(path, load_external_data=False).graph
        constants = {tensor.name for tensor in graph.initializer}
        self.inputs = [value.name for value in graph.input if value.name not in constants]
        self.calibrate, self.test = self._feeds(calibrate), self._feeds(test)

    def _feeds(self, data):
        return data if isinstance(data, list) else [{self.inputs[0]: row[None]} for row in data]


PHOTOS = "crops of scikit-learn's photographs"


def networks():
    """name -> a function that makes the Network."""
    models, data = SHARED / "models", SHARED / "data"

    def digits():
        test = np.load(DIGITS / "digits_test.npz")
        learn = np.load(DIGITS / "digits_calibration.npz")["images"]
        return Network(DIGITS / "digits_float.onnx", learn, test["images"], "other digits", labels=test["labels"])

    def resnet8():
        held = np.load(data / "cifar10_test200.npz")
        calibrate = planes(crops(CALIBRATION, 32, 32))
        return Network(
            models / "mlperf_tiny_resnet8.onnx", calibrate, planes(held["images"]), PHOTOS, labels=held["labels"]
        )

    def mnist(name, scale=1.0, mean=0.0, std=1.0):
        def make():
            held = np.load(data / "mnist_test500.npz")
            calibrate = planes(digits_as_mnist(CALIBRATION)[..., None], scale, mean, std)
            test = planes(held["images"][..., None], scale, mean, std)
            return Network(models / name, calibrate, test, "scikit-learn's digits", labels=held["labels"])

        return make

    def pictures(name, side, scale, mean=0.0, std=1.0):
        def make():
            held = np.concatenate([faces(side, side), crops(26, side, side, seed=1)])
            calibrate = planes(crops(CALIBRATION, side, side), scale, mean, std)
            return Network(models / name, calibrate, planes(held, scale, mean, std), PHOTOS, classes=True)

        return make

    def detector(name, height, width, objects, scale=1.0, mean=0.0, flip=False):
        def make():
            arrange = (lambda p: planes(p[..., ::-1], scale, mean)) if flip else (lambda p: planes(p, scale, mean))
            # A detector calibrated on pictures without objects learns no range for their scores.
            calibrate = arrange(face_crops(CALIBRATION, height, width, slice(1, None, 2)))
            test = arrange(faces(height, width, slice(0, None, 2)))
            return Network(models / name, calibrate, test, "crops of three other pictures", objects=objects)

        return make

    def cct():
        held = np.load(data / "cifar10_test200.npz")["images"]
        mean, std = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
        calibrate = planes(crops(CALIBRATION, 32, 32), 1 / 255, mean, std)
        return Network(
            models / "cct_cifar.onnx", calibrate, planes(held[:64], 1 / 255, mean, std), PHOTOS, classes=True
        )

    def tracker():
        mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        make = lambda a, b: [
            {"template": planes(t[None], 1 / 255, mean, std), "search": planes(s[None], 1 / 255, mean, std)}
            for t, s in zip(a, b)
        ]
        calibrate = make(crops(16, 128, 128), crops(16, 256, 256))
        return Network(models / "vitTracker.onnx", calibrate, make(faces(128, 128), faces(256, 256)), PHOTOS)

    return {
        "digits": digits,
        "resnet8": resnet8,
        "mnist-8": mnist("mnist-8.onnx"),
        "mnist_pytorch": mnist("cnn_mnist_pytorch.onnx", 1 / 255, 0.1307, 0.3081),
        "mnist_burn": mnist("mnist_burn.onnx", 1 / 255, 0.1307, 0.3081),
        "vww": pictures("mlperf_tiny_vww_mobilenetv1_025.onnx", 96, 1 / 255),
        "mobilenetv2_035": pictures("mobilenetv2_035_128.onnx", 128, 1 / 127.5, 1.0),
        "ultraface": detector("ultraface-RFB-320.onnx", 240, 320, ultraface_objects, 1 / 128, 127 / 128),
        "yunet": detector("yunet_n_320_320.onnx", 320, 320, yunet_objects, flip=True),
        "yolox_nano": detector("yolox_nano.onnx", 416, 416, yolox_objects, flip=True),
        "cct_cifar": cct,
        "vit_tracker": tracker,
    }


# --- measuring
# ---------------------------------------------------------------------------------------------------------


def default_quantisation(prepared, feeds):
    """What onnxruntime.quantization.quantize_static makes of the model without options."""
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.feeds = iter(feeds)

        def get_next(self):
            return next(self.feeds, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder) / "float.onnx", pathlib.Path(folder) / "int8.onnx"
        onnx.save(prepared, source)
        quantize_static(str(source), str(target), Reader())
        return onnx.load(target)


def run_all(model, feeds):
    from tessera.quantization import measure

    session = measure.session(model)
    return [session.run(None, feed) for feed in feeds]


def machine(model, feed, config):
    """Share of the products on the NPU, cycles of the timing model where it is built, predicted ones else; and whether
    the outputs are those of ONNX Runtime."""
    import tessera
    from tessera.quantization.measure import session

    device = "sysc" if "sysc" in tessera.backends() else "fsim"
    timed = tessera.Session(model.SerializeToString(), device, config, profile=False)
    got, want = timed.run(None, feed), session(model).run(None, feed)
    stats = timed.stats()
    macs = stats.macs + stats.macs_cpu
    equal = all(np.array_equal(a, b) for a, b in zip(got, want))
    steps = [float(np.abs(a - b).max() / max(1e-9, np.abs(b).max())) for a, b in zip(got, want)]
    return stats.macs / macs if macs else 1.0, stats.cycles or stats.predicted_cycles, equal, max(steps)


def score(network, reference, results):
    """A text for the row: labels right, classes or objects that agree."""
    if network.labels is not None:
        right = sum(int(np.argmax(r[0]) == label) for r, label in zip(results, network.labels))
        return f"{right} of {len(network.labels)} right"
    if network.objects is not None:
        found, total = same_objects(network.objects, reference, results)
        return f"{found} of {total} objects"
    if network.classes:
        same = sum(int(np.argmax(a[0]) == np.argmax(b[0])) for a, b in zip(reference, results))
        return f"{same} of {len(results)} agree"
    return ""


def rows_of(name, network, config):
    import tessera
    from tessera.quantization import engines, measure
    from tessera.quantization.prepare import prepare

    prepared = prepare(network.path, {"Conv", "Gemm", "MatMul"})
    reference = run_all(prepared, network.test)
    yield {"network": name, "way": "float", "score": score(network, reference, reference), "told": network.told}
    ways = ["onnxruntime default", "onnxruntime"]
    try:
        engines.import_nncf()
        ways.append("nncf")
    except tessera.Error as e:
        print(f"{name}: {e}", file=sys.stderr)
    for way in ways:
        start = time.monotonic()
        if way == "onnxruntime default":
            model = default_quantisation(prepared, network.calibrate)
        else:
            model = tessera.quantize(network.path, network.calibrate, engine=way, config=config).model
        seconds = time.monotonic() - start
        share, cycles, equal, difference = machine(model, network.test[0], config)
        yield {
            "network": name,
            "way": way,
            "score": score(network, reference, run_all(model, network.test)),
            "output_snr_db": round(measure.output_distance(model, network.test, reference), 1),
            "products_on_npu_percent": round(100 * share, 2),
            "cycles": cycles,
            "equal_to_onnx_runtime": equal,
            "largest_difference": difference,
            "seconds": round(seconds, 1),
        }


def bench(names, config):
    """Rows of the named networks (all of them if there is none)."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    logging.getLogger().setLevel(logging.ERROR)  # advice of ONNX Runtime's quantiser
    rows = []
    for name, make in networks().items():
        if names and name not in names:
            continue
        try:
            network = make()
        except (FileNotFoundError, ImportError) as e:
            print(f"{name}: left out, {e}", file=sys.stderr)
            continue
        for row in rows_of(name, network, config or "npu256"):
            rows.append(row)
            print(f"{row['network']}, {row['way']}: {row['score']}", file=sys.stderr)
    return {"quantize": rows}
