import json


def test_the_tracking_demo_shows_the_plane_and_says_how_far_off_each_way_is(run):
    said = run("demo", "tracking", "--seed", 2)
    assert said.code == 0, said.stderr
    assert said.stderr == ""
    assert ". where it was   o where it was seen   * where the smoother puts it" in said.stdout
    for way in (
        "last sighting",
        "filter",
        "smoother",
        "noises learnt by EM",
        "the noise of a sighting",
    ):
        assert way in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80


def test_the_tracking_demo_as_a_picture(run, tmp_path):
    assert run("demo", "tracking", "--plot", tmp_path / "target.svg").code == 0
    drawn = (tmp_path / "target.svg").read_text()
    assert all(name in drawn for name in ("where it was seen", "smoother, 80 %", "x over time"))


def test_the_tracking_demo_as_json(run):
    told = json.loads(run("demo", "tracking", "--seed", 5, "--json").stdout)
    assert told["seed"] == 5
    assert told["errors"]["smoother"] < told["errors"]["filter"] < told["errors"]["last sighting"]


def test_help_says_what_each_demo_is_about(run):
    said = run("demo", "--help")
    assert (
        "seqlab demo             dates in 48 languages, without attention and with it"
        in said.stdout
    )
    assert "seqlab demo tracking    follow a moving target" in said.stdout
    assert "[default: dates]" in said.stdout


def test_a_demo_that_is_not_there(run):
    said = run("demo", "trackin")
    assert said.code == 2
    assert said.error == ("there is no demo 'trackin'", "did you mean 'tracking'?")
