# SPDX-License-Identifier: Apache-2.0
"""Tessera: compile ONNX models and run them on an open NPU.

    import tessera
    session = tessera.Session("model.onnx", device="fsim", config="npu256")
    outputs = session.run(None, {"input": x})
    session.stats().cycles

Session has the shape of onnxruntime.InferenceSession: run, get_inputs, get_outputs. Errors are tessera.Error with a
`code` ("invalid_model", "invalid_argument", ...) and a message that names the node or input, the cause and what to do.
"""

import atexit
import collections.abc
import json
import os
import sys
import threading

import _tessera

DeviceTensor = _tessera.DeviceTensor
Error = _tessera.Error
backends = _tessera.backends
__version__ = _tessera.version
atexit.register(_tessera.end_searches)
__all__ = [
    "Chip",
    "DeviceTensor",
    "Error",
    "IOBinding",
    "Layer",
    "NodeArg",
    "PredictedModel",
    "Session",
    "Stats",
    "backends",
    "compile",
    "compile_options",
    "quantize",
]


class NodeArg:
    """Name, ONNX Runtime type string such as "tensor(float)", and shape of an input or output; names or None for
    dynamic dimensions."""

    _TYPES = {"float32": "float", "float64": "double"}

    def __init__(self, port):
        self.name = port["name"]
        self.shape = port["shape"]
        element = self._TYPES.get(port["dtype"], port["dtype"])
        self.type = f"tensor({element})" if port["kind"] == "tensor" else f"{port['kind']}(tensor({element}))"
        if "keys" in port:  # a sequence of maps, one for each row
            key = "string" if isinstance(port["keys"][0], str) else "int64"
            self.type, self.shape = f"seq(map({key},tensor({element})))", []
        if "key_dtype" in port:
            self.type, self.shape = f"map({port['key_dtype']},tensor({element}))", []

    def __repr__(self):
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


KEYS, VALUES = ".keys", ".values"  # of an input that is a map: the vectors that the compiled model takes


def _whole_maps(ports):
    """The inputs with one port for the keys and the values of a map."""
    known, whole = {port["name"]: port for port in ports}, []
    for port in ports:
        name = port["name"].removesuffix(VALUES)
        keys = known.get(name + KEYS)
        if port["name"].endswith(VALUES) and keys and keys["shape"] == port["shape"]:
            whole = [other for other in whole if other is not keys]
            port = {**port, "name": name, "key_dtype": keys["dtype"]}
        whole.append(port)
    return whole


def _split_maps(feed, ports):
    """The feed with the keys and the values of each dict as vectors."""
    import numpy as np

    split, kinds = {}, {port["name"]: port["dtype"] for port in ports}
    for name, value in feed.items():
        if not (isinstance(value, collections.abc.Mapping) and name + KEYS in kinds):
            split[name] = value
            continue
        for part, items in ((name + KEYS, value.keys()), (name + VALUES, value.values())):
            kind = object if kinds[part] == "string" else kinds[part]
            split[part] = np.array(list(items), kind)
    return split


class Layer(dict):
    """One row of the statistics; keys are also attributes."""

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None


class Stats(Layer):
    """Statistics of a run: cycles (None on devices without time), macs, utilization, roofline_cycles, dram_read_bytes,
    dram_write_bytes, nodes_npu, nodes_cpu, instructions, layers."""

    def __init__(self, values):
        super().__init__(values)
        if "layers" in self:
            self["layers"] = [Layer(row) for row in self["layers"]]


class IOBinding:
    """Inputs and outputs of a session that are bound once and serve for several runs, in the shape of
    onnxruntime.IOBinding. What is bound is an array, or a DeviceTensor: a tensor in the device's memory that an earlier
    run left there, with `shape`, `dtype`, `name` and copy_to_host(). A device tensor may be held and used longer than
    the binding. Errors: tessera.Error that names the input or output."""

    def __init__(self, session):
        self._binding = _tessera.IoBinding(session._session)

    def bind_input(self, name, value):
        """value: an array or a DeviceTensor of the type and shape that the model takes."""
        self._binding.bind_input(name, value)

    bind_cpu_input = bind_input
    bind_ortvalue_input = bind_input

    def bind_output(self, name, device_type="cpu"):
        """device_type: "cpu" for an array, "device" for a DeviceTensor."""
        if device_type not in ("cpu", "device"):
            raise ValueError(f"an output is bound to 'cpu' or 'device', not {device_type!r}")
        self._binding.bind_output(name, device_type == "device")

    def bind_output_to_device(self, name):
        """The output stays in the device's memory."""
        self._binding.bind_output(name, True)

    def clear_binding_inputs(self):
        self._binding.clear_inputs()

    def clear_binding_outputs(self):
        self._binding.clear_outputs()

    def run(self):
        """Runs the session; the results are outputs()."""
        self._binding.run()

    def outputs(self):
        """The results of the last run by name: arrays, or DeviceTensors where they were bound to the device."""
        return dict(zip(self._binding.output_names(), self._binding.outputs(), strict=True))

    def get_outputs(self):
        """The same as a list, in the order in which the outputs were bound."""
        return self._binding.outputs()

    def copy_outputs_to_cpu(self):
        """All of them as arrays."""
        return [v.copy_to_host() if isinstance(v, DeviceTensor) else v for v in self._binding.outputs()]


def compile_options():
    """The options of a compilation, as the command and the C interface have them too: dicts of name, summary and
    default."""
    return _tessera.compile_options()


class Session:
    """A model on a device.

    model: path of an ONNX or LiteRT file or an artifact (.tsr), or its bytes. device: "fsim" (functional simulator),
    "reference" (interpreter), another of tessera.backends(), or "remote:HOST:PORT" of a `tessera serve`. config: npu64,
    npu256, npu256t, npu1024, ... or a .toml file; default: the artifact's own, what a model was quantised for, or
    npu256. shapes: {input: shape} for dynamic dimensions; without it a model is compiled for the shapes that come and
    kept. wave: an FST file of device "rtl". schedules: a dict from layers to schedules as schedules() gives it (those
    that are missing are chosen), or the stats() of a run. profile: keep figures of each instruction, for layers' cycles
    and trace(); without it device "rtl" is faster. trusted_keys: file or folder of public keys; an artifact that none
    of them has signed is refused before anything else of it is read.

    progress: a function of (waiting, instructions), called now and then while a program runs: whether it waits for its
    turn on a device that others use, and how many instructions it has executed.

    external: {location: contiguous array} of external data of a model that is given as bytes. The memory is shared, and
    must not change while the session lives.

    keep_state: whether the variables of a LiteRT model, and the states of its recurrent cells, go on from one run to
    the next, as in its interpreter; without it each run begins anew.

    cores: numbers of the cores of a chip on which the model runs; default all. chip: a Chip that other sessions use,
    too, in the place of device, config and device_options. priority: among sessions of a chip that have cores in
    common; the program of the highest comes first.

    Every other keyword is an option of the compilation; help(tessera.Session) lists them below, and
    tessera.compile_options() returns them. dram, dram_latency and dram_bandwidth hold for devices with time, too.
    """

    def __init__(
        self,
        model,
        device="fsim",
        config="",
        *,
        shapes=None,
        device_options=None,
        schedules=None,
        check_races=False,
        poison=None,
        base_address=None,
        wave=None,
        profile=True,
        trusted_keys=None,
        progress=None,
        external=None,
        keep_state=True,
        cores=None,
        chip=None,
        priority=0,
        **options,
    ):
        options = {name: value for name, value in options.items() if value is not None}
        unknown = sorted(set(options) - {row["name"] for row in compile_options()})
        if unknown:
            known = ", ".join(row["name"] for row in compile_options())
            raise TypeError(f"Session() has no keyword {unknown[0]!r}; options of the compilation are {known}")
        if chip is not None:
            if config or device_options:
                raise TypeError("Session() takes config and device_options of its chip; leave them out")
            device, config = chip.device, chip.config
        device_options = dict(device_options or {})
        timed = device not in ("fsim", "reference")  # these two have no memory of their own to be slow
        for name, value in (
            ("latency", options.get("dram_latency") if timed else None),
            ("bandwidth", options.get("dram_bandwidth") if timed else None),
            ("dram", options.get("dram") if timed else None),
            ("waves", wave),
        ):
            if value is not None:
                device_options[name] = value
        if kernels := sys.modules.get("tessera.tile.models"):  # whoever registers one has imported it
            model = kernels.prepared(model, config, shapes)
        self._session = _tessera.Session(
            model,
            device,
            config,
            dict(shapes or {}),
            {k: str(v) for k, v in device_options.items()},
            json.dumps(schedules) if schedules else "",
            check_races,
            poison,
            base_address,
            {name: str(value) for name, value in options.items()},
            profile,
            None if trusted_keys is None else os.fspath(trusted_keys),
            progress,
            dict(external or {}),
            keep_state,
            list(cores or []),
            None if chip is None else chip._chip,
            priority,
        )

    def run(self, output_names, input_feed, run_options=None):
        """Results as a list of arrays, those named in output_names or all for None. A sequence of maps (ZipMap) is a
        list of dicts, and an input that is a map a dict. run_options is accepted and not used."""
        if isinstance(output_names, str | bytes):
            raise TypeError(f"output_names is a list of names or None, not {output_names!r}")
        if not isinstance(input_feed, collections.abc.Mapping):
            raise TypeError(f"input_feed is a dict from names of inputs to arrays, not a {type(input_feed).__name__}")
        feed = dict(input_feed)
        if any(isinstance(value, collections.abc.Mapping) for value in feed.values()):
            feed = _split_maps(feed, self._session.inputs())
        results = self._session.run(list(output_names or []), feed)
        ports = self._session.outputs()
        keys = {port["name"]: port["keys"] for port in ports if "keys" in port}
        if not keys:
            return results
        names = list(output_names or [port["name"] for port in ports])
        as_maps = lambda name, rows: [dict(zip(keys[name], row)) for row in rows.tolist()]
        return [as_maps(name, result) if name in keys else result for name, result in zip(names, results)]

    def pasts(self):
        """Of a decoder with past and present whose past is dynamic: (input, output, axis) of each past. The output is
        the input with what the run adds along the axis. Empty for other models."""
        return self._session.pasts()

    def reset_state(self):
        """The variables of a LiteRT model, and the states of its recurrent cells, have their initial values again."""
        self._session.reset_state()

    def io_binding(self):
        """A new IOBinding of this session."""
        return IOBinding(self)

    def run_with_iobinding(self, binding, run_options=None):
        """Runs with what is bound. run_options is accepted and not used."""
        binding.run()

    def prepare(self, shapes):
        """Compiles for shapes that will come, behind the runs, and returns at once. shapes: a list of dicts from inputs
        to shapes, those of all dynamic inputs in each. finish_search() waits for them."""
        self._session.prepare([{name: list(shape) for name, shape in one.items()} for one in shapes])

    def searching(self):
        """Whether a better program than one that has run is being looked for (option `effort`). It takes that one's
        place at the next run after it has been found. Results are the same."""
        return self._session.searching()

    def finish_search(self):
        """Waits until no better program is looked for."""
        self._session.finish_search()

    def to_device(self, array):
        """Copies an array into the device's memory and returns the DeviceTensor."""
        return self._session.to_device(array)

    def get_inputs(self):
        return [NodeArg(port) for port in _whole_maps(self._session.inputs())]

    def get_outputs(self):
        return [NodeArg(port) for port in self._session.outputs()]

    def get_overridable_initializers(self):
        """Initializers that run() may be given as inputs. Without that they keep their value. The model is compiled
        again for each set of them that comes. An artifact has none."""
        return [NodeArg(port) for port in self._session.overridable()]

    def stats(self):
        """Statistics of the last run."""
        return Stats(json.loads(self._session.stats_json()))

    def report(self, path=None):
        """The versioned report of the last run as a dict: docs/report.md says what stands in it. With a path it is
        written there too: as a page for the browser where the path ends in .html, else as JSON."""
        text = self._session.report_json()
        if path is not None:
            page = os.fspath(path).endswith(".html")
            with open(path, "w", encoding="utf-8") as file:
                file.write(self._session.report_html() if page else text)
        return json.loads(text)

    def trace(self):
        """Chrome trace of the last run as a dict."""
        return json.loads(self._session.trace_json())

    def schedules(self):
        """The schedules of all layers on the NPU by name, to be edited and given back as `schedules`."""
        return json.loads(self._session.schedules_json())

    def info(self):
        """What the compiled artifact consists of and where it runs."""
        return Layer(json.loads(self._session.info_json()))

    def save(self, path):
        """Writes the compiled artifact."""
        self._session.save(str(path))


Session.__doc__ += "\n" + "".join(
    f"    {row['name']}: {row['summary']}. Default: {row['default']}.\n" for row in compile_options()
)


class Chip:
    """A chip of several cores that sessions share, each on cores of its own: Session(model, chip=chip, cores=[0, 1]).
    Their programs run at once on the devices with time ("sysc", "rtl"), over one bus; on others one after another.
    Sessions that have cores in common take turns, by priority.

    config: a configuration with several cores. device, device_options: as Session takes them. Errors: Error."""

    def __init__(self, config, device="sysc", *, device_options=None):
        self.config, self.device = config, device
        self._chip = _tessera.SharedChip(device, config, {k: str(v) for k, v in (device_options or {}).items()})

    @property
    def cores(self):
        """How many there are."""
        return self._chip.cores()

    def run_together(self, runs):
        """Runs sessions of this chip at once, each its feeds one after another, without a gap: on the chip the next
        program of a session begins when its last one has ended. So cycles are the same each time. A session whose
        feeds are finished leaves its cores idle.

        runs: a list of (session, list of input feeds). Returns a list, one for each session, of (outputs, cycles) for
        each of its feeds: a list of arrays, and the cycles of its programs. Errors: those of Session.run, when all
        have ended."""
        results, problems = [[] for _ in runs], []
        attendances = [session._session.attend() for session, _ in runs]

        def follow(number):
            session, feeds = runs[number]
            try:
                for feed in feeds:
                    outputs = session.run(None, feed)
                    results[number].append((outputs, session.stats().cycles))
            except Exception as problem:
                problems.append(problem)
            finally:
                attendances[number] = None

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(len(runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        return results


class PredictedModel:
    """A model whose cycles on many machines are asked for. The front end (import, graph passes) runs once; tiles,
    chains and instructions are made for each machine.

    model: bytes of an ONNX file or its path. shapes: {input: shape} for dynamic dimensions; a dynamic batch is 1.
    Errors: Error."""

    def __init__(self, model, shapes=None):
        if not isinstance(model, bytes):
            model = _tessera.model_bytes(os.fspath(model))
        self._model = _tessera.PredictedModel(model, dict(shapes or {}))

    def predict(self, config, **options):
        """What would run on the machine, as Session.info() gives it: `layers` have predicted_cycles and bytes. Equal
        blocks of weights count as often as they stand there, where a program keeps them once. config:
        text of a configuration file. options: of the compilation. Errors: Error when the model does not compile for
        the machine."""
        return Layer(json.loads(self._model.predict(config, {name: str(value) for name, value in options.items()})))

    def placement(self, config, **options):
        """{npu, cpu, macs_npu, macs_cpu}: the names of the nodes that would run on each, and their products. No
        schedule is looked for, so it takes an instant. config: name or path of a configuration. Errors: Error when the
        model is not valid."""
        return self._model.placement(config, {name: str(value) for name, value in options.items()})

    def bound(self, config, **options):
        """{cycles, bytes, issued_macs} that no program for the machine is below, whatever its schedules and whatever
        the sizes of the scratchpads. It takes an instant. Errors: as predict."""
        return self._model.bound(config, {name: str(value) for name, value in options.items()})


def compile(model, output, config="", *, shapes=None, **options):
    """Compiles an ONNX model into the artifact `output` and returns its description. config: as Session takes it."""
    session = Session(model, "fsim", config, shapes=shapes, **options)
    session.save(output)
    return session.info()


def quantize(model, calibrate, output=None, **options):
    """Quantises a float ONNX model so that its products run on the NPU: see tessera.quantization.quantize. What that
    needs (onnx, onnxruntime) is imported when it is first called."""
    from .quantization import quantize as implementation

    return implementation(model, calibrate, output, **options)
