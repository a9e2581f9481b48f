import json


def test_the_tracking_demo_shows_the_plane_and_the_error_of_each_method(run):
    result = run("demo", "tracking", "--seed", 2)
    assert result.code == 0, result.stderr
    assert result.stderr == ""
    assert ". true path   o measurements   * path estimated by the smoother" in result.stdout
    for method in (
        "last sighting",
        "filter",
        "smoother",
        "noises learnt by EM",
        "noise of a measurement",
    ):
        assert method in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_tracking_demo_as_a_picture(run, tmp_path):
    assert run("demo", "tracking", "--plot", tmp_path / "target.svg").code == 0
    svg = (tmp_path / "target.svg").read_text()
    assert all(name in svg for name in ("measurements", "smoother, 80 %", "x over time"))


def test_the_tracking_demo_as_json(run):
    report = json.loads(run("demo", "tracking", "--seed", 5, "--json").stdout)
    assert report["seed"] == 5
    assert (
        report["errors"]["smoother"]
        < report["errors"]["filter"]
        < report["errors"]["last sighting"]
    )


def test_help_describes_each_demo(run):
    result = run("demo", "--help")
    assert (
        "seqlab demo             dates in 48 languages, without attention and with it"
        in result.stdout
    )
    assert "seqlab demo tracking    follow a moving target" in result.stdout
    assert "[default: dates]" in result.stdout


def test_an_unknown_demo(run):
    result = run("demo", "trackin")
    assert result.code == 2
    assert result.error == ("there is no demo 'trackin'", "did you mean 'tracking'?")
