# SPDX-License-Identifier: Apache-2.0
"""Functions of libraries that branch on values although their results do not need it, and forms without the branch.
torch.export follows one path for all values, so it refuses the branch. The forms stand in while a module is captured.
Then operators of the captured graph that the ONNX exporter takes wrongly, in a form that it takes."""

import contextlib
import sys

import torch


def _batched_nms(boxes, scores, idxs, iou_threshold):
    """torchvision.ops.batched_nms for any number of boxes: those of each class are moved apart by the largest
    coordinate, which is 0 where there is no box."""
    import torchvision

    most = torch.cat([boxes.reshape(-1), boxes.new_zeros(1)]).max()
    apart = idxs.to(boxes) * (most + 1)
    return torchvision.ops.nms(boxes + apart[:, None], scores, iou_threshold)


def _topk_min(tensor, k, axis):
    """The smaller of k and the size of an axis, whichever that is."""
    return torch.sym_min(k, tensor.size(axis))


FORMS = (
    ("torchvision.ops.boxes", "batched_nms", _batched_nms),
    ("torchvision.models.detection._utils", "_topk_min", _topk_min),
)


@contextlib.contextmanager
def forms_without_branches():
    """The forms stand for the functions of the libraries that are loaded."""
    found = [(sys.modules[module], name, form) for module, name, form in FORMS if module in sys.modules]
    kept = [(module, name, getattr(module, name)) for module, name, _ in found if hasattr(module, name)]
    try:
        for module, name, form in found:
            if hasattr(module, name):
                setattr(module, name, form)
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)


class Helps:
    """What helps the exporter with a module: `forms` are a context in which it is captured and converted, `table` what
    stands for operators, and `fix` changes a captured graph."""

    def __init__(self, forms=contextlib.nullcontext, table=None, fix=lambda graph: None):
        self.forms, self.table, self.fix = forms, table or {}, fix


def helps_for(module):
    """The Helps to be tried in turn: none, and those that transformers brings for its models in newer versions."""
    yield Helps()
    transformers = sys.modules.get("transformers")
    parts = module.modules() if transformers is not None and isinstance(module, torch.nn.Module) else ()
    model = next((part for part in parts if isinstance(part, transformers.PreTrainedModel)), None)
    if model is None:
        return
    try:
        from transformers.exporters import exporter_dynamo, exporter_onnx, utils

        table = dict(exporter_onnx._ONNX_TRANSLATION_TABLE)
        exporter_dynamo.register_cache_pytrees_for_model(model)
    except (ImportError, AttributeError):  # an older version has none, another one other names
        return

    @contextlib.contextmanager
    def forms():
        with utils.apply_patches("onnx"), utils.apply_patches("dynamo"), exporter_dynamo.reset_model_state(model):
            yield

    yield Helps(forms, table, lambda graph: utils.apply_fx_node_fixes("onnx", graph))


def in_known_forms(captured):
    """Changes an ExportedProgram. A number minus a tensor (`1.0 - mask`) gets its number as a tensor: the exporter
    promotes types of tensors alone, and fails at one of integers."""
    aten = torch.ops.aten
    for part in captured.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.find_nodes(op="call_function", target=aten.rsub.Scalar):
            tensor, number, *alpha = node.args
            value = tensor.meta.get("val")
            if value is None or not isinstance(number, (int, float)):
                continue
            dtype = torch.result_type(value, number)
            with part.graph.inserting_before(node):
                full = part.graph.call_function(aten.full.default, ([], number), {"dtype": dtype})
                full.meta["val"] = value.new_empty([], dtype=dtype)
                factor = {"alpha": alpha[0]} if alpha else dict(node.kwargs)
                fresh = part.graph.call_function(aten.sub.Tensor, (full, tensor), factor)
                fresh.meta.update(node.meta)
            node.replace_all_uses_with(fresh)
            part.graph.erase_node(node)
        part.recompile()
