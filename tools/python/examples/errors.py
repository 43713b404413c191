"""A mistake is an exception that knows the rule, the place, what was seen and what is allowed."""
import sinter

graph = sinter.Graph()
a = graph.tensor("a", [4, 8])
try:
    a @ a
except sinter.Error as error:
    print(error)
    print(error.rule, "|", error.where, "|", error.seen, "|", error.allowed, "|", error.fix)
