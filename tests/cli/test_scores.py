import gzip
import json
import shutil
from dataclasses import dataclass, field

import pytest


@dataclass(frozen=True)
class Form:
    """One way to write the data of a task: the files, and the columns that training must be told of."""

    task: str
    texts: dict
    columns: list = field(default_factory=list)


NUMBERS = [f"{a} {b}" for a in range(5) for b in range(5)]
LABELS = ["even" if sum(map(int, n.split())) % 2 == 0 else "odd" for n in NUMBERS]
TAGS = [" ".join("E" if int(d) % 2 == 0 else "O" for d in n.split()) for n in NUMBERS]
ROWS = list(zip(NUMBERS, LABELS, strict=True))


def conll(columns):
    sentences = zip(NUMBERS, TAGS, strict=True)
    rows = (
        [
            "\t".join(columns(i, w, t))
            for i, (w, t) in enumerate(zip(words.split(), tags.split(), strict=True), 1)
        ]
        for words, tags in sentences
    )
    return "".join("".join(line + "\n" for line in sentence) + "\n" for sentence in rows)


FORMS = {
    "pairs in TSV": Form("translate", {"p.tsv": "".join(f"{n}\t{n[::-1]}\n" for n in NUMBERS)}),
    "pairs in CSV": Form(
        "translate", {"p.csv": "source,target\n" + "".join(f'"{n}","{n[::-1]}"\n' for n in NUMBERS)}
    ),
    "pairs in numbered columns": Form(
        "translate",
        {"p.tsv": "".join(f"x\t{n[::-1]}\t{n}\n" for n in NUMBERS)},
        ["data.source=3", "data.target=2"],
    ),
    "pairs in parallel files": Form(
        "translate",
        {
            "p.a": "".join(f"{n}\n" for n in NUMBERS),
            "p.b": "".join(f"{n[::-1]}\n" for n in NUMBERS),
        },
    ),
    "labels in TSV": Form("classify", {"c.tsv": "".join(f"{label}\t{n}\n" for n, label in ROWS)}),
    "labels in CSV": Form(
        "classify", {"c.csv": "text,label\n" + "".join(f"{n},{label}\n" for n, label in ROWS)}
    ),
    "labels in JSONL with names of their own": Form(
        "classify",
        {"c.jsonl": "".join(json.dumps({"review": n, "stars": label}) + "\n" for n, label in ROWS)},
        ["data.source=review", "data.target=stars"],
    ),
    "labels in parallel files": Form(
        "classify",
        {
            "c.x": "".join(f"{n}\n" for n in NUMBERS),
            "c.y": "".join(f"{label}\n" for label in LABELS),
        },
    ),
    "tags in CoNLL": Form("tag", {"t.conll": conll(lambda i, word, tag: (word, tag))}),
    "tags in CoNLL-U": Form(
        "tag",
        {"t.conllu": conll(lambda i, word, tag: (str(i), word, "_", tag, *["_"] * 6))},
        ["data.target=upos"],
    ),
    "tags in TSV": Form(
        "tag", {"t.tsv": "".join(f"{n}\t{t}\n" for n, t in zip(NUMBERS, TAGS, strict=True))}
    ),
    "tags in parallel files": Form(
        "tag", {"t.x": "".join(f"{n}\n" for n in NUMBERS), "t.y": "".join(f"{t}\n" for t in TAGS)}
    ),
    "text": Form("lm", {"b.txt": "".join(f"{n} is {label}\n" for n, label in ROWS)}),
    "text, a line at a time": Form(
        "lm", {"b.txt": "".join(f"{n} is {label}\n" for n, label in ROWS)}, ["data.unit=line"]
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_training_format_can_be_evaluated(run, small, tmp_path, name):
    form = FORMS[name]
    for file, text in form.texts.items():
        (tmp_path / file).write_text(text)
    paths = [tmp_path / file for file in form.texts]
    columns = [word for setting in form.columns for word in ("-s", setting)]
    trained = run(
        "train", form.task, *paths, "-o", tmp_path / "m", "-q", *small(form.task), *columns
    )
    assert trained.code == 0, trained.stderr

    report = json.loads(run("evaluate", tmp_path / "m", *paths, "--json").stdout)
    assert report["task"] == form.task
    assert report["examples"] == (sum(map(len, form.texts["b.txt"])) - 1 if name == "text" else 25)
    assert report["baselines"]
    assert report["loss"] > 0


BASELINES = {
    "lm": {"1-gram", "5-gram"},
    "mask": {"by frequency"},
    "bilm": {"1-gram", "5-gram"},
    "classify": {"majority class", "TF-IDF, linear"},
    "tag": {"most frequent tag"},
    "translate": {"copy of the source"},
}


@pytest.mark.parametrize("task", sorted(BASELINES))
def test_without_a_file_the_held_out_part_is_scored(run, models, task):
    report = json.loads(run("evaluate", models[task], "--json").stdout)
    assert set(report["baselines"]) == BASELINES[task]
    stored = json.loads((models[task] / "metrics.json").read_text())["validation"]
    assert {key: report[key] for key in stored} == stored


@pytest.mark.parametrize("task", sorted(BASELINES))
def test_every_score_has_its_baseline(run, models, task):
    result = run("evaluate", models[task])
    assert "this model" in result.stdout
    for baseline in BASELINES[task]:
        assert baseline in result.stdout
    assert result.stderr == ""


def test_bleu_is_shown_with_its_signature(run, models):
    assert "bleu signature: nrefs:1|" in run("evaluate", models["translate"]).stdout


def test_the_number_of_mistakes(run, models):
    assert "some mistakes" not in run("evaluate", models["translate"], "--errors", 0).stdout
    assert "some mistakes" in run("evaluate", models["translate"], "--errors", 2).stdout


def test_a_compressed_file(run, models, files, tmp_path):
    (tmp_path / "p.tsv.gz").write_bytes(gzip.compress(files["translate"].read_bytes()))
    plain, packed = (
        run("evaluate", models["translate"], path)
        for path in (files["translate"], tmp_path / "p.tsv.gz")
    )
    assert packed.stdout == plain.stdout


def test_unknown_labels_are_reported_and_count_as_wrong(run, models, tmp_path):
    (tmp_path / "c.tsv").write_text("odd\t1\nstrange\t0 1\nnew\t1 1\nstrange\t1\n")
    result = run("evaluate", models["classify"], tmp_path / "c.tsv", "--json")
    assert result.code == 0
    assert result.stderr == (
        f"warning: {tmp_path / 'c.tsv'}:2: labels never seen in training count as wrong: 'strange' (2), 'new' (1)\n"
    )
    report = json.loads(result.stdout)
    assert report["accuracy"] <= 0.25
    assert report["baselines"]["majority class"]["accuracy"] <= 0.25


def test_an_infinite_loss_is_null_in_json(run, models, tmp_path):
    """JSON has no NaN, and a file of unknown labels has no likelihood."""
    (tmp_path / "c.tsv").write_text("strange\t0 1\n")
    result = run("evaluate", models["classify"], tmp_path / "c.tsv", "--json")
    report = json.loads(result.stdout, parse_constant=pytest.fail)
    assert report["loss"] is None
    assert report["accuracy"] == 0
    assert "nan" not in run("evaluate", models["classify"], tmp_path / "c.tsv").stdout


def test_unknown_tags_are_reported(run, models, tmp_path):
    (tmp_path / "t.conll").write_text("A NAME\nb VERB\n")
    result = run("evaluate", models["tag"], tmp_path / "t.conll")
    assert (
        f"{tmp_path / 't.conll'}:1: labels never seen in training count as wrong: 'VERB' (1)"
        in result.stderr
    )


def test_an_exported_model_needs_a_file(run, models, files, tmp_path):
    shutil.copytree(models["lm"], tmp_path / "m", ignore=shutil.ignore_patterns("run"))
    result = run("evaluate", tmp_path / "m")
    assert result.code == 2
    assert result.error == (
        f"{tmp_path / 'm'}: this model has no held-out data",
        "give a file with known answers.",
    )
    assert (
        "note: the n-gram baseline needs the training part"
        in run("evaluate", tmp_path / "m", files["lm"]).stdout
    )


def test_held_out_data_that_was_damaged(run, models, tmp_path):
    shutil.copytree(models["classify"], tmp_path / "m")
    held_out = tmp_path / "m" / "run" / "data" / "held-out.jsonl"
    lines = held_out.read_text().splitlines()
    held_out.write_text("\n".join(lines)[:-10])
    result = run("evaluate", tmp_path / "m")
    assert result.code == 1
    assert result.error[0].startswith(f"{held_out}:{len(lines)}: not a held-out example: ")


def test_translations_are_scored_by_beam_without_case_and_by_length(run, models):
    result = run("evaluate", models["translate"], "--beam", 2, "--lower", "--json")
    report = json.loads(result.stdout)
    assert "case:lc" in report["bleu_signature"]
    assert sum(part["examples"] for part in report["by_length"].values()) == report["examples"]
    assert 0 <= report["token_accuracy"] <= 1
    assert "by length of the source" in run("evaluate", models["translate"]).stdout
