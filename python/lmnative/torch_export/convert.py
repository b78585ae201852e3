# SPDX-License-Identifier: Apache-2.0
"""from_torch: exports the module, walks the exported graph, and makes a session of what comes out.

Operators are in the tables of the other files; what none of them has is decomposed by PyTorch, and what is still
unknown then is listed in one error.
"""

from __future__ import annotations

import operator
from typing import Any

from lmnative.errors import InvalidArgumentError, UnsupportedError
from lmnative.graph import Graph, Value
from lmnative.session import Session

PYTHON_OPERATORS = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div", operator.mod: "Mod",
}  # fmt: skip


def from_torch(
    module: Any,
    example_inputs: Any,
    example_kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    **session_options: Any,
) -> Session:
    """A session that computes what a PyTorch module does, in evaluation mode as it is now.

    Args:
        module: A torch.nn.Module in evaluation mode (`module.eval()`), on the CPU; or a torch.export.ExportedProgram.
        example_inputs: A tuple of tensors, or one: what the module is called with. For an ExportedProgram: ignored.
        example_kwargs: Arguments by name.
        dynamic_shapes: Sizes that differ from run to run, as torch.export.export wants them; a str stands for
            torch.export.Dim of that name: `{"x": {0: "batch"}}`, or `({0: "batch"},)`. Others are as in the examples.
            In the examples such a size is 2 or more: PyTorch takes 0 and 1 for what they are.
        session_options: Options of Session.

    Inputs have the names of the arguments of `forward`; one output is "output", several are "output.0", "output.1" and
    so on, or what the keys and fields of a result say. Parameters are used where they lie and must not be changed.

    Raises:
        ImportError: torch is not installed.
        TypeError: not a module.
        UnsupportedError: operators that there is nothing for, all of them.
    """
    torch = _torch()
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    else:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module or an ExportedProgram, not {type(module).__name__}")
        if module.training:
            raise InvalidArgumentError("the module is in training mode; call module.eval() first")
        args = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        shapes = _dims(torch, dynamic_shapes)
        from lmnative.torch_export.recurrent import whole_layers

        with torch.no_grad(), whole_layers():
            program = torch.export.export(module, tuple(args), example_kwargs, dynamic_shapes=shapes, strict=False)
    from lmnative.torch_export.operators import OPERATORS

    table = torch.export.default_decompositions()
    for target in OPERATORS:
        table.pop(target, None)
    program = program.run_decompositions(table)
    names = _symbol_names(torch, program, dynamic_shapes)
    return Converter(torch, program, OPERATORS, names).graph().session(**session_options)


def _torch() -> Any:
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise ImportError(
            "lmnative.from_torch needs PyTorch 2.6 or newer, which is not installed: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        ) from error
    return torch


def _dims(torch: Any, shapes: Any) -> Any:
    """dynamic_shapes with names in place of Dims."""
    if isinstance(shapes, str):
        return torch.export.Dim(shapes)
    if isinstance(shapes, dict):
        return {key: _dims(torch, item) for key, item in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)(_dims(torch, item) for item in shapes)
    return shapes


def _symbol_names(torch: Any, program: Any, shapes: Any) -> dict[str, str]:
    """What the caller calls a size, by what PyTorch calls it ("s77")."""
    found: dict[str, str] = {}
    inputs = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]

    def visit(node: Any, spec: Any) -> None:
        items = spec.items() if isinstance(spec, dict) else enumerate(spec) if isinstance(spec, (tuple, list)) else ()
        for dim, one in items:
            name = one if isinstance(one, str) else getattr(one, "__name__", None)
            if isinstance(dim, int) and name is not None and dim < len(node.meta["val"].shape):
                found[str(node.meta["val"].shape[dim])] = name

    if isinstance(shapes, dict):
        for node in inputs:
            visit(node, shapes.get(node.name))
    elif isinstance(shapes, (tuple, list)):
        for node, spec in zip(inputs, shapes, strict=False):
            visit(node, spec)
    return found


class Converter:
    """One exported program on its way to a Graph. Operators get it, the node, and the node's arguments, in which values
    of the program are Values of the graph, and sizes that are not known are Values that are int64 scalars."""

    def __init__(self, torch: Any, program: Any, operators: dict[Any, Any], symbols: dict[str, str]) -> None:
        self.torch = torch
        self.program = program
        self.operators = operators
        self.symbols = symbols
        self.g = Graph()
        self.values: dict[str, Any] = {}  # by the name of the node
        self.tensors: dict[str, Any] = {}  # parameters and other constants, likewise
        self.varying: set[Any] = set()  # nodes that depend on an input
        self.vectors: dict[int, Value] = {}  # sizes as vectors of one element, by the number of the size

    def graph(self) -> Graph:
        nodes = self._needed()
        self._refuse_unknown(nodes)
        for node in nodes:
            if node.name in self.program.graph_signature.user_inputs or self.varying.intersection(node.all_input_nodes):
                self.varying.add(node)
        for node in nodes:
            if node.op == "placeholder":
                self.values[node.name] = self._placeholder(node)
            elif node.op == "call_function":
                self.values[node.name] = self._call(node)
            elif node.op == "output":
                self._outputs(node.args[0])
        return self.g

    def dtype(self, node: Any) -> str:
        """Type of the elements of a node's result."""
        return str(node.meta["val"].dtype).removeprefix("torch.")

    def rank(self, node: Any) -> int:
        return len(node.meta["val"].shape)

    def cast(self, value: Any, dtype: str) -> Any:
        """A value with elements of this type; numbers become constants of it."""
        if isinstance(value, Value):
            return value if value.dtype == dtype else self.g.cast(value, to=dtype)
        if dtype == "bool":
            value = bool(value)
        elif not dtype.startswith(("float", "bfloat")):
            value = int(value)
        return self.g.constant(value, dtype)

    def ints(self, items: Any) -> Any:
        """A list of sizes as a vector: a list if all are known, else a Value."""
        items = list(items)
        if not any(isinstance(item, Value) for item in items):
            return [int(item) for item in items]
        parts = [self._vector(item) if isinstance(item, Value) else [int(item)] for item in items]
        return parts[0] if len(parts) == 1 else self.g.concat(*parts, axis=0)

    def _vector(self, size: Value) -> Value:
        if size.id not in self.vectors:
            self.vectors[size.id] = self.g.unsqueeze(size, [0])
        return self.vectors[size.id]

    def sizes(self, node: Any) -> list[Any]:
        """Sizes of a node's result: numbers, and PyTorch's expressions."""
        return [size if isinstance(size, int) else size.node.expr for size in node.meta["val"].shape]

    def reshape(self, node: Any, value: Value, old: list[Any], items: Any) -> Value:
        """`value`, whose sizes were `old`, in the shape of `node`, which the program gives as `items`."""
        new = self.sizes(node)
        shape: list[Any] = []
        for i, size in enumerate(new):
            if isinstance(size, int) or size.is_Integer:
                shape.append(int(size))
            elif i < len(old) and old[i] == size:
                shape.append(0)  # the size that it has
            else:
                shape.append(None)
        if any(isinstance(size, int) and size == 0 for size in new):  # a 0 that means 0
            return self.g.reshape(value, self.ints(items), allowzero=1)
        if shape.count(None) == 1:
            shape[shape.index(None)] = -1
        elif shape.count(None) > 1:
            return self.g.reshape(value, self.ints(items), allowzero=1)
        return self.g.reshape(value, shape if shape else self.empty())

    def empty(self) -> Value:
        """An empty list of integers."""
        import numpy as np

        return self.g.constant(np.zeros(0, np.int64))

    def tensor(self, node: Any) -> Any:
        """The torch tensor of a parameter or another constant of the program."""
        if node.name not in self.tensors:
            raise UnsupportedError(f"{node} must be a parameter or a constant of the module")
        return self.tensors[node.name]

    def _placeholder(self, node: Any) -> Any:
        signature, program = self.program.graph_signature, self.program
        name = node.name
        target = (
            signature.inputs_to_parameters.get(name)
            or signature.inputs_to_buffers.get(name)
            or signature.inputs_to_lifted_tensor_constants.get(name)
        )
        if target is not None:
            tensor = program.state_dict.get(target)
            tensor = program.constants[target] if tensor is None else tensor
            self.tensors[name] = tensor.detach()
            return None  # made when somebody reads it: what becomes part of something else is not needed
        example = node.meta.get("val")
        if not isinstance(example, self.torch.Tensor):
            return example  # a number of the examples
        shape = [size if isinstance(size, int) else self._symbol(size) for size in example.shape]
        return self.g.input(name, example.dtype, shape)

    def _symbol(self, size: Any) -> str | None:
        text = str(size)
        return self.symbols.get(text, text if text.isidentifier() else None)

    def resolve(self, argument: Any) -> Any:
        """What an argument of a node is here."""
        if isinstance(argument, self.torch.fx.Node):
            value = self.values[argument.name]
            if value is None and argument.name in self.tensors:
                value = self.g.constant(self.tensors[argument.name], name=argument.name)
                self.values[argument.name] = value
            return value
        if isinstance(argument, (list, tuple)):
            return [self.resolve(item) for item in argument]
        return argument

    def _call(self, node: Any) -> Any:
        target = node.target
        if target is operator.getitem:
            return self.values[node.args[0].name][node.args[1]]
        if target in PYTHON_OPERATORS:
            a, b = (self.resolve(argument) for argument in node.args)
            if isinstance(a, Value) or isinstance(b, Value):
                return self.g.op(PYTHON_OPERATORS[target], self.cast(a, "int64"), self.cast(b, "int64"))
            return target(a, b)
        handler = self.operators[target]
        if getattr(handler, "raw", False):
            return handler(self, node)
        kwargs = {key: self.resolve(value) for key, value in node.kwargs.items()}
        return handler(self, node, *(self.resolve(argument) for argument in node.args), **kwargs)

    def _needed(self) -> list[Any]:
        """The nodes that the results depend on, in order: no assertions."""
        *nodes, output = self.program.graph.nodes
        needed = set(output.all_input_nodes)
        for node in reversed(nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        return [node for node in nodes if node in needed or node.op == "placeholder"] + [output]

    def _refuse_unknown(self, nodes: list[Any]) -> None:
        known = {operator.getitem, *PYTHON_OPERATORS, *self.operators}
        unknown = {str(node.target) for node in nodes if node.op == "call_function" and node.target not in known}
        if unknown:
            raise UnsupportedError(f"operators of PyTorch that are not supported: {', '.join(sorted(unknown))}")

    def _outputs(self, results: Any) -> None:
        pytree = self.torch.utils._pytree
        specs = self.program.graph_signature.output_specs
        kept = [
            node for node, spec in zip(results, specs, strict=True) if spec.kind.name == "USER_OUTPUT"
        ]  # the others are changes of buffers, which nobody sees
        tree = pytree.tree_unflatten(list(range(len(kept))), self.program.call_spec.out_spec)
        paths, _ = pytree.tree_flatten_with_path(tree)
        names = [".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path)
                 for path, _ in paths]  # fmt: skip
        if len(names) == 1 and not names[0]:
            names = ["output"]
        for name, node in zip(names, kept, strict=True):
            value = self.resolve(node)
            if not isinstance(value, Value):
                raise UnsupportedError(f"the module returns {value!r}, which is not a tensor")
            # An input or a constant that comes out again is a value of its own.
            text = f"output.{name}" if name.isdigit() else name
            self.g.output(text, self.g.identity(value) if node.op == "placeholder" else value)
