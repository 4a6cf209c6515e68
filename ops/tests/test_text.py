# SPDX-License-Identifier: Apache-2.0
"""String operators and TfIdfVectorizer beside ONNX Runtime; regular expressions beside Python's re where both syntaxes
agree."""

import re

import _tessera_ops
import numpy as np
import pytest
from either_oracle import check_either
from ort_compare import check, check_rejected, infer, run_tessera


def strings(values, shape=None):
    array = np.array(values, object)
    return array.reshape(shape) if shape is not None else array


def test_normalizer():
    words = ["Monday", "tuesday", "WEDNESDAY", "", "tuesday"]
    for x in (strings(words), strings(words, (1, 5))):
        for action in ("NONE", "LOWER", "UPPER"):
            for sensitive in (0, 1):
                for stop in (None, ["monday", "WEDNESDAY"], ["Monday", "tuesday", "WEDNESDAY", ""]):
                    check(
                        "StringNormalizer",
                        [x],
                        attributes={
                            "locale": "C.UTF-8",
                            "case_change_action": action,
                            "is_case_sensitive": sensitive,
                            "stopwords": stop,
                        },
                        static=False,
                    )
    accents = run_tessera(
        "StringNormalizer", [strings(["ÀÉÎ Straße Жук Ωμ"])], attributes={"case_change_action": "LOWER"}
    )[0]
    assert accents.tolist() == ["àéî straße жук ωμ"]
    check_rejected("StringNormalizer", [strings(["a"] * 4, (2, 2))], match="shape")
    check_rejected("StringNormalizer", [strings(["a"])], attributes={"case_change_action": "TITLE"}, match="TITLE")


def test_concat():
    a, b = strings(["x", "", "é", "w"], (2, 2)), strings(["1", "22"])
    check_either("StringConcat", [a, b], opset=20)
    check_either("StringConcat", [a, strings("!", ())], opset=20)
    check("StringConcat", [a, b], opset=20, expected=[strings(["x1", "22", "é1", "w22"], (2, 2))])
    check_rejected("StringConcat", [a, np.zeros(2, np.float32)], opset=20, match="element type")


def test_split():
    x = strings(["a,b,,c", "", "no", ",edge,"], (2, 2))
    for delimiter in (",", ",,", "b"):
        for most in (None, 0, 1, 2):
            check_either(
                "StringSplit",
                [x],
                opset=20,
                attributes={"delimiter": delimiter, "maxsplit": most},
                outputs=2,
                static=False,
            )
    y = strings(["  two  words ", "tab\tand\nline", "", " ", "one"])
    for delimiter in (None, ""):
        for most in (None, 1):
            pieces = [t.split(None, -1 if most is None else most) for t in y]
            width = max(len(p) for p in pieces)
            want = strings([p + [""] * (width - len(p)) for p in pieces])
            check(
                "StringSplit",
                [y],
                opset=20,
                attributes={"delimiter": delimiter, "maxsplit": most},
                outputs=2,
                static=False,
                expected=[want, np.array([len(p) for p in pieces])],
            )
    # ONNX Runtime takes blanks for the only white space and trims the unsplit rest.
    check("StringSplit", [y[[0, 2, 3, 4]]], opset=20, outputs=2, static=False)


PATTERNS = r"""|a|abc|a|b|(a|b)*c|a?b+c*|a{2}|a{1,3}b|a{2,}|(?:ab){2}|[a-c]+|[^a-c]+|[]a]+|[a\]b-]+
|\d+\.\d*|\w+@\w+\.com|\s*x\s*|.*|.+é.|^abc$|(?i)AbC|a(?i:B)c
|(?P<n>a)b|[[:alpha:]]+|[[:^digit:]x]+|\x41\x{e9}|\bab\b.*|a\B.*|(?s).*|a\|b|(a*)*|(a|aa)+$|x*|[\d\-]+|\Qa.b\E|{|a{,2}|a{x|(?m)a$\nb|\141|\.|\\|(|a)b"""
TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aab",
    "aaaab",
    "aaa",
    "abab",
    "bbc",
    "12.5",
    "7.",
    "me@x.com",
    " x\t",
    "xéy",
    "ABC",
    "aBc",
    "Aé",
    "ab cd",
    "a\nb",
    "a|b",
    "]]a",
    "a-]b",
    "1-2-3",
    "a.b",
    "axb",
    "{",
    "a{,2}",
    "a{x",
    "\\",
    ".",
    "é",
    "xyz",
    "x9",
]


def python_pattern(pattern):
    """The same pattern for Python's re: it lacks POSIX classes, \\x{} and \\Q."""
    swaps = {
        r"[[:alpha:]]": "[a-zA-Z]",
        r"[[:^digit:]x]": r"[\D]",
        r"\x{e9}": "é",
        r"\Qa.b\E": r"a\.b",
        r"a{,2}": r"a\{,2\}",
        r"(a*)*": "a*",
    }
    for left, right in swaps.items():
        pattern = pattern.replace(left, right)
    return re.compile(pattern.replace("$", r"\Z") if "(?m)" not in pattern else pattern, re.ASCII)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        *[p for p in PATTERNS.replace("\n", "").split("|") if p.count("(") == p.count(")") and p != "a\\"],
        "a|b",
        "(a|b)*c",
        "(|a)b",
        r"a\|b",
        "(a|aa)+$",
    ],
)
def test_regex(pattern):
    compiled = re.compile("(?i)abc") if pattern == "(?i)AbC" else python_pattern(pattern)
    want = np.array([compiled.fullmatch(text) is not None for text in TEXTS])
    check("RegexFullMatch", [strings(TEXTS)], opset=20, attributes={"pattern": pattern}, expected=[want])
    check_either("RegexFullMatch", [strings(TEXTS)], opset=20, attributes={"pattern": pattern})


@pytest.mark.parametrize(
    "pattern,code",
    [
        ("(", "invalid_model"),
        (")", "invalid_model"),
        ("[a", "invalid_model"),
        ("*a", "invalid_model"),
        ("a**", "invalid_model"),
        ("a{3,2}", "invalid_model"),
        ("a{1001}", "invalid_model"),
        ("[z-a]", "invalid_model"),
        ("a\\", "invalid_model"),
        (r"\y", "invalid_model"),
        (r"(a)\1", "invalid_model"),
        (r"\pL", "unsupported"),
        ("(?P<n", "invalid_model"),
        ("(?=a)", "invalid_model"),
        ("[[:nothing:]]", "invalid_model"),
        (r"\x{110000}", "invalid_model"),
        ("(" * 1000 + ")" * 1000, "unsupported"),
        ("((a{1000}){1000})", "unsupported"),
        ("(((((){1000}){1000}){1000}){1000})", "unsupported"),
    ],
)
def test_bad_patterns(pattern, code):
    with pytest.raises(_tessera_ops.TesseraError, match="pattern") as caught:
        run_tessera("RegexFullMatch", [strings(["a"])], opset=20, attributes={"pattern": pattern})
    assert caught.value.code == code


def test_long_texts_take_linear_time():
    text = "a" * 20000
    assert run_tessera(
        "RegexFullMatch", [strings([text, text + "b"])], opset=20, attributes={"pattern": "(a*)*(a|aa)+b?"}
    )[0].tolist() == [True, True]
    assert not run_tessera("RegexFullMatch", [strings([text])], opset=20, attributes={"pattern": "(a+)+b"})[0][0]


POOL = dict(ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5, 6], pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, object])
def test_tf_idf(mode, dtype):
    pool = dict(POOL)
    if dtype is object:
        pool["pool_strings"] = [str(v) for v in pool.pop("pool_int64s")]
    for x in (
        np.array([1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8]),
        np.array([[2, 3, 5, 4], [5, 6, 7, 8]]),
        np.zeros((2, 1), np.int64),
    ):
        x = strings([str(v) for v in x.ravel()], x.shape) if dtype is object else x.astype(dtype)
        for shortest, longest in [(1, 1), (1, 2), (2, 2)]:
            for skips in (0, 1, 5):
                for weights in (None, [2.0, 3.0, 0.5, 7.0, 1.5, 4.0, 9.0]):
                    attributes = pool | {
                        "mode": mode,
                        "min_gram_length": shortest,
                        "max_gram_length": longest,
                        "max_skip_count": skips,
                        "weights": weights,
                    }
                    check("TfIdfVectorizer", [x], attributes=attributes)


def test_tf_idf_errors():
    x = np.array([1, 2], np.int64)
    good = POOL | {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    assert infer("TfIdfVectorizer", [("int64", [-1, 9])], attributes=good)[0][:2] == ("float32", [-1, 7])
    for change, match in [
        ({"mode": "XX"}, "mode"),
        ({"ngram_counts": [0, 3]}, "divide"),
        ({"ngram_indexes": [0]}, "ngram_indexes"),
        ({"weights": [1.0]}, "weight"),
        ({"max_gram_length": 0}, "range"),
        ({"ngram_counts": [1]}, "begin with 0"),
        ({"ngram_indexes": [0, 1, 2, 3, 4, 5, -6]}, "out of range"),
    ]:
        check_rejected("TfIdfVectorizer", [x], attributes=good | change, match=match)
    check_rejected("TfIdfVectorizer", [strings(["a"])], attributes=good, match="element type")


TEXTS = strings(["The cat sat", "", "a,b;; c  d", "Über naïve 日本語", "x1 foo_bar 42!", "ababab"])
PAD = {"mark": 0, "mincharnum": 1, "pad_value": "#"}


def check_tokens(x, **attributes):
    check("Tokenizer", [x], domain="com.microsoft", opset=1, attributes=PAD | attributes, static=False)


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("least", [1, 2, 3])
def test_tokens_between_separators(mark, least):
    for separators in ([" "], [" ", ","], ["[,;]", " +"], ["b"], ["ab|a", "x"], [r"[^a-zA-Z]+"], ["日"]):
        check_tokens(TEXTS, mark=mark, mincharnum=least, separators=separators)


@pytest.mark.parametrize("mark", [0, 1])
def test_tokens_that_an_expression_matches(mark):
    for expression in (
        "[a-zA-Z0-9_]+",
        "[a-z]+|[A-Z]",
        "a|ab|aba",
        "\\b[a-z]",
        "^.",
        "x*",
        "(ab){2}",
        "[^ ]+$",
        "(?i)the|SAT",
    ):
        for least in (1, 2):
            check_tokens(TEXTS, mark=mark, mincharnum=least, tokenexp=expression)
    check_tokens(TEXTS.reshape(3, 2), mark=mark, tokenexp=".")
    check_tokens(TEXTS.reshape(2, 3), mark=mark, separators=[""])
    check_tokens(strings(["", ""], (2, 1)), mark=mark, separators=[" "])
    check_tokens(strings([], (3, 0)), mark=mark, separators=[" "])


def test_tokenizers_that_are_refused():
    def rejected(match, x=TEXTS, drop=(), **attributes):
        attributes = {k: v for k, v in (PAD | attributes).items() if k not in drop}
        check_rejected("Tokenizer", [x], match=match, domain="com.microsoft", opset=1, attributes=attributes)

    rejected("'pad_value' is missing", drop=("pad_value",), separators=[" "])
    rejected("'separators' or 'tokenexp'")
    rejected("at least 1", mincharnum=0, separators=[" "])
    rejected("must be 1", mincharnum=2, tokenexp=".")
    rejected("without '\\)'|'\\(' without", tokenexp="(a")
    rejected("shape", TEXTS.reshape(1, 2, 3), separators=[" "])
