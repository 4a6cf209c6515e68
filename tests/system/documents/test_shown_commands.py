# SPDX-License-Identifier: Apache-2.0
"""What documents show of `tessera` can be typed: the command exists, it has each flag that is shown, and a flag that
takes a value is shown with one."""

import functools
import re

import pytest

from tests.system.conftest import ROOT

PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("[a-z]*/**/README.md")})
    if not {"build", "node_modules"} & set(path.relative_to(ROOT).parts)
]
COMMAND = re.compile(r"(?:^|(?<=[\s;`(|]))(?<!from )(?<!import )tessera ([a-z]+)\b([^\n;`#|&>)]*)")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
# Commands whose next word says of which form the flags are.
FORMS = {"kernel": ("run", "check", "profile", "listing", "tune", "embed"), "litex": ("--simulate", "--bitstream")}


def shown(text):
    """[(command, its words)] of what stands in blocks and between backquotes."""
    blocks = FENCED.findall(text)
    plain = FENCED.sub("", text)
    blocks += re.findall(r"^ {4}(.*(?:\\\n.*)*)", plain, re.M) + re.findall(r"`([^`]+)`", plain)
    found = []
    for name, rest in COMMAND.findall("\n".join(blocks).replace("\\\n", " ")):
        found.append((name, re.split(r"(?:^|\s)--(?:\s|$)", rest)[0].split()))
    return found


@functools.cache
def flags(command, *words):
    """{flag: whether a value follows it}, from the help."""
    done = command(*words, "--help")
    assert done.returncode == 0, done.stderr
    found = {}
    for line in re.findall(r"^ {2,4}(-.*)$", done.stdout, re.M):
        names = re.split(r"\s{2,}", line)[0]
        for name in re.findall(r"(?:^|[ ,])(--?[\w-]+)", names):
            found[name] = re.search(r"[\w-] \S", names.replace(", ", ",")) is not None
    return found


def wrong(command, name, words, commands):
    """What a reader who types this would be told, or nothing."""
    if name not in commands:
        return f"there is no command '{name}'"
    form = [word for word in words if word in FORMS.get(name, ())][:1]
    if name in FORMS and not form:
        return ""  # named, not typed
    known = flags(command, name, *form)
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        flag, _, value = word.partition("=")
        if not flag.startswith("-") or not re.fullmatch(r"--?[a-z][\w-]*", flag):
            continue
        if flag not in known:
            return f"'{name}' has no {flag}"
        if known[flag] and len(words) > 1 and not value and (after == "" or after.startswith("--")):
            return f"{flag} of '{name}' takes a value"
    return ""


def test_what_is_shown():
    block = "    tessera run a --x 1 \\\n      --y -- b --z   # --w\n"
    fenced = "```console\n$ tessera sign c; tessera asm\n```\n"
    text = f"{block}\nSay `tessera info d`, and `from tessera import tile`.\n{fenced}"
    assert sorted(shown(text)) == [("asm", []), ("info", ["d"]), ("run", ["a", "--x", "1", "--y"]), ("sign", ["c"])]


def test_what_is_wrong(command):
    commands = {"run", "litex"}
    assert wrong(command, "fly", [], commands) == "there is no command 'fly'"
    assert wrong(command, "run", ["m", "--wings", "2"], commands) == "'run' has no --wings"
    assert wrong(command, "run", ["m", "--random-inputs"], commands) == "--random-inputs of 'run' takes a value"
    assert wrong(command, "run", ["m", "--random-inputs", "1", "--check-races", "-o", "y.npz"], commands) == ""
    assert wrong(command, "litex", ["--simulate", "--port", "1"], commands) == ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_can_be_typed(command, page):
    commands = set(re.findall(r"^  ([a-z]+) {2,}\S", command("--help").stdout, re.M))
    found = [wrong(command, name, words, commands) for name, words in shown((ROOT / page).read_text())]
    assert [line for line in found if line] == []
