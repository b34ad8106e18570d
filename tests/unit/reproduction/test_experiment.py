from pathlib import Path

import pytest

from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.reproduction.experiment import read_experiment, read_experiments

HEAD = """
title = "Errors"
source = "Table 1"
question = "Is it better?"
protocol = "Paper: GPUs. Here: CPUs."
cell_s = 1
[over]
system = ["esdg", "psg"]
"""
CLAIM = """
[[claims]]
name = "less-error"
text = "ESDG has less error than PSG"
rule = "less"
value = "test_loss"
ours = { system = "esdg" }
rival = { system = "psg" }
paper = { size = 0.1, text = "10 % less" }
"""


def written(folder: Path, text: str, name: str = "table1") -> Path:
    file = folder / "paper" / f"{name}.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def test_an_experiment_is_named_by_its_path(tmp_path):
    experiment = read_experiment(written(tmp_path, HEAD + CLAIM))
    assert experiment.id == "paper/table1"
    assert experiment.rows_file == tmp_path / "paper" / "results" / "table1.json"
    assert [claim.name for claim in experiment.testable] == ["less-error"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("cell_s = 1", "cell_s = 0"), "cell_s: Input should be greater than 0"),
        (('rival = { system = "psg" }', ""), "rule 'less' needs a rival"),
        (('ours = { system = "esdg" }', 'ours = { model = "esdg" }'), "there is no axis 'model'"),
        (('ours = { system = "esdg" }', 'ours = { system = "dynahb" }'), "axis 'system' has no 'dynahb'"),
        (('rule = "less"', 'rule = "fewer"'), "claims.0.rule"),
        (('value = "test_loss"', 'value = "tets_loss"'), "'tets_loss'. Did you mean 'test_loss'?"),
        (("size = 0.1", "size = 10"), "0.1 for 10 %, not 10"),
        (('value = "test_loss"', ""), "needs rule, value and paper.size"),
        (('rule = "less"', 'rule = "less"\nuntestable = "too large"'), "both a rule and untestable"),
        (("title", "titel"), "titel: Extra inputs are not permitted"),
        (('title = "Errors"', 'paper = "x"\ntitle = "Errors"'), "gives paper, which its path decides"),
        (("cell_s = 1", "cell_s = "), "is not valid TOML"),
    ],
)
def test_an_error_names_the_file_and_the_entry(tmp_path, changed, message):
    file = written(tmp_path, (HEAD + CLAIM).replace(*changed))
    with pytest.raises(ConfigError, match="table1") as error:
        read_experiment(file)
    assert message in str(error.value)


def test_two_claims_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="need different names"):
        read_experiment(written(tmp_path, HEAD + CLAIM + CLAIM))


def test_a_digest_follows_the_rule_and_not_the_words(tmp_path):
    def digest_of(text):
        experiment = read_experiment(written(tmp_path, text))
        return experiment.rule_digest(experiment.claims[0])

    digest = digest_of(HEAD + CLAIM)
    assert digest_of(HEAD + CLAIM.replace("has less error than", "beats")) == digest
    assert digest_of(HEAD + CLAIM.replace("size = 0.1", "size = 0.05")) != digest
    assert digest_of("deterministic = true\n" + HEAD + CLAIM) != digest


def test_experiments_are_chosen_by_paper_or_name(tmp_path):
    for name in ("table1", "table2"):
        written(tmp_path, HEAD + CLAIM, name)
    assert len(read_experiments(tmp_path)) == len(read_experiments(tmp_path, ("paper",))) == 2
    assert [experiment.id for experiment in read_experiments(tmp_path, ("paper/table2",))] == ["paper/table2"]
    for name, allowed in (
        ("paper/table3", "paper/table1, paper/table2"),
        ("table1", "paper, paper/table1"),
        ("a", "paper"),
    ):
        with pytest.raises(UnknownNameError, match=f"{name}.* Allowed: {allowed}\\.$"):
            read_experiments(tmp_path, (name,))
    with pytest.raises(ConfigError, match="--folder"):
        read_experiments(tmp_path / "missing")
