"""Inputs that a graph updates at its end, such as the running statistics of batch norms.

AOTAutograd leaves one copy_ for each. Many small ones cost the host more than the GPU, so that they
become one operation for all of a type. Like what multi-tensor optimizers of PyTorch do.
"""
import torch

_ATEN = torch.ops.aten


def take(graph):
    """Removes the copies, so that nothing is moved across them; their sources become results. Gives
    the names of the inputs."""
    updates = [(n.args[0], n.args[1], n) for n in graph.nodes
               if n.target is _ATEN.copy_.default and not n.users
               and n.args[0].op == "placeholder"]
    output = graph.output_node()
    if updates:
        output.args = ([*output.args[0], *(source for _, source, _ in updates)],)
    for *_, node in updates:
        graph.erase_node(node)
    return [target.name for target, *_ in updates]


def put(graph, names):
    """Puts the updates of these inputs behind all that reads them."""
    if not names:
        return
    placeholders = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    targets, output = [placeholders[name] for name in names], graph.output_node()
    results = list(output.args[0])
    sources = results[len(results) - len(targets):]
    output.args = (results[:len(results) - len(targets)],)
    groups = {}
    for target, source in zip(targets, sources):
        added = _added(target, source)
        value = target.meta["val"]
        groups.setdefault((value.dtype, value.device, added), []).append((target, source))
    with graph.inserting_before(output):
        for (*_, added), pairs in groups.items():
            into, values = map(list, zip(*pairs))
            if added is None:
                graph.call_function(_ATEN._foreach_copy_.default, (into, values))
                continue
            graph.call_function(_ATEN._foreach_add_.Scalar, (into, added))
            for node in dict.fromkeys(values):
                graph.erase_node(node)


def _added(target, source):
    """The number that the source adds to the target, where it is that sum and nothing else reads
    it."""
    if source.target is not _ATEN.add.Tensor or source.users or source.kwargs:
        return None
    a, b = source.args
    return b if a is target and isinstance(b, (int, float)) else None
