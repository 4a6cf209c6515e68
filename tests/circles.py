# SPDX-License-Identifier: Apache-2.0
"""Finds circles of files: sources that need one another, so that none can be read, tested or replaced alone. Enters:
every file that git knows. Leaves: a line for each circle, and exit status 1 if there is any.

Read are the imports of Python, also those inside of functions; the imports of TypeScript, also those of types alone;
and the #include lines of C++ headers. A circle is a strongly connected component of more than one file, by Tarjan's
algorithm. A package's `__init__.py` gathers what its modules offer and stands for none of them, so its own imports are
not followed."""

import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPESCRIPT = re.compile(r"""^\s*(?:import|export)\b[^;"']*?(?:from\s+)?["'](\.{1,2}/[^"']+)["']""", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
PACKAGES = ("", "tessera/python")  # folders from which names of packages count


def listed():
    """The files of the project: what git tracks, and what is new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in names.split("\0") if name and (ROOT / name).is_file()}


def joined(*parts):
    return str(pathlib.PurePosixPath(*(part for part in parts if part)))


def imported(tree, name):
    """(folder or None, dotted name) of each import of a Python file; the folder is that of a relative import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((None, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = pathlib.PurePosixPath(name).parents[node.level - 1] if node.level else None
            for alias in node.names:
                yield folder, f"{node.module}.{alias.name}" if node.module else alias.name


def python_file(folders, dotted, files):
    """The file of the longest beginning of a dotted name that is one, looked for in each of the folders."""
    words = dotted.split(".")
    for count in range(len(words), 0, -1):
        for folder in folders:
            path = joined(folder, *words[:count])
            for found in (f"{path}.py", f"{path}/__init__.py"):
                if found in files:
                    return found
    return None


def python_needs(name, text, files):
    if name.endswith("/__init__.py"):
        return
    beside = str(pathlib.PurePosixPath(name).parent)
    for folder, dotted in imported(ast.parse(text, name), name):
        yield python_file([str(folder)] if folder else [beside, *PACKAGES], dotted, files)


def typescript_needs(name, text, files):
    for target in TYPESCRIPT.findall(text):
        parts = []
        for part in pathlib.PurePosixPath(name).parent.joinpath(target).parts:
            parts = parts[:-1] if part == ".." else [*parts, part]
        yield f"{'/'.join(parts).removesuffix('.ts')}.ts"


def header_needs(name, text, files):
    for target in INCLUDE.findall(text):
        yield next(
            (path for path in (target, joined(pathlib.PurePosixPath(name).parent, target)) if path in files), None
        )


READERS = {".py": python_needs, ".ts": typescript_needs, ".h": header_needs}


def needs(files):
    """{file: files that it names}. `files`: {name: text}."""
    graph = {}
    for name, text in files.items():
        reader = READERS.get(pathlib.PurePosixPath(name).suffix)
        if reader:
            graph[name] = {other for other in reader(name, text, files) if other in files and other != name}
    return graph


def circles(graph):
    """The strongly connected components of more than one node, each sorted, all sorted."""
    order, low, stack, found = {}, {}, [], []

    def close(node):
        if low[node] == order[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            for one in stack[at:]:
                low[one] = len(graph)  # belongs to a component that is complete
            del stack[at:]

    def visit(root):
        order[root] = low[root] = len(order)
        stack.append(root)
        path = [(root, iter(sorted(graph[root])))]
        while path:
            node, rest = path[-1]
            other = next(rest, None)
            if other is None:
                path.pop()
                close(node)
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
            elif other not in order:
                order[other] = low[other] = len(order)
                stack.append(other)
                path.append((other, iter(sorted(graph[other]))))
            else:
                low[node] = min(low[node], low[other])

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return sorted(found)


def main():
    names = [name for name in listed() if pathlib.PurePosixPath(name).suffix in READERS]
    files = {name: (ROOT / name).read_text(errors="replace") for name in names}
    found = circles(needs(files))
    for circle in found:
        print(f"circle of {len(circle)} files: {', '.join(circle)}; one of them must stop needing the others")
    if not found:
        print(f"circles: none among {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
