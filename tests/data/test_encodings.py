"""Files that are not UTF-8: read where the encoding is beyond doubt, else refused with the setting that reads them."""

import pytest

from seqlab.data.encodings import guess_encoding
from seqlab.data.lines import lines
from seqlab.errors import DataError, SeqlabWarning, UsageError

TEXTS = {
    "gb18030": "味道不错，送餐很快，下次还会来。\n这家店的菜太咸了，等了一个小时，不好吃。\n",
    "big5": "這家店的菜很好吃，我們下次還會來。\n等了一個小時，味道不好，太貴了。\n",
    "shift_jis": "昨日、友達と新しい映画を見に行きました。\nとても面白かったので、また行きたいです。\n",
    "euc_jp": "昨日、友達と新しい映画を見に行きました。\nとても面白かったので、また行きたいです。\n",
    "euc_kr": "어제 친구와 함께 새 영화를 보러 갔습니다.\n정말 재미있었고 다음에도 가고 싶어요.\n",
    "koi8-r": "Вчера мы с друзьями ходили смотреть новый фильм.\nОн нам очень понравился.\n",
    "windows-1251": "Вчера мы с друзьями ходили смотреть новый фильм.\nОн нам очень понравился.\n",
    "windows-1252": "Le château était fermé à midi, dommage.\nOn a mangé une crêpe près de la forêt, très bonne.\n",
    "windows-1250": "Wczoraj byliśmy w kinie, żeby obejrzeć nowy film.\nBył świetny, choć trochę za długi i głośny.\n"
    * 3,
    "windows-1253": "Χθες πήγαμε με τους φίλους μας να δούμε μια νέα ταινία.\n",
    "cp874": "เมื่อวานนี้ฉันไปดูหนังเรื่องใหม่กับเพื่อน สนุกมากจริงๆ\n",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_an_encoding_that_is_beyond_doubt_is_read_with_a_note(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(TEXTS[encoding].encode(encoding))
    with pytest.warns(
        SeqlabWarning, match=f"a.txt: read as {encoding}, for instance .*data.encoding=NAME"
    ):
        assert [text for _, text in lines(str(path))] == TEXTS[encoding].split("\n")[:-1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize(
    "text", ["label\ttext\r\npos\tGrüße\r\n", "标签,评论\n一,不错不错\n二,一般一般\n三,很好\n" * 3]
)
def test_wide_encodings_are_read_as_if_they_were_utf8(tmp_path, encoding, text):
    path = tmp_path / "a.tsv"
    path.write_bytes(text.encode(encoding))
    assert [line for _, line in lines(str(path))] == text.replace("\r", "").split("\n")[:-1]


@pytest.mark.parametrize(
    "encoding", [name for name in TEXTS if name not in ("windows-1250", "windows-1253")]
)
def test_a_few_words_are_refused_with_the_setting_that_reads_them(tmp_path, encoding):
    path = tmp_path / "a.txt"
    word = {"windows-1252": "château", "koi8-r": "нет"}.get(encoding, TEXTS[encoding][:4])
    path.write_bytes(f"fine\n{word}\n".encode(encoding))
    with pytest.raises(DataError, match=r"a\.txt:2: not valid UTF-8") as refused:
        list(lines(str(path)))
    assert "if that is right: --set data.encoding=" in refused.value.hint
    assert [text for _, text in lines(str(path), encoding)] == ["fine", word]


@pytest.mark.parametrize(
    "text", ["only £100 it’s “free”", "naïve Cafés", "Señor Muñoz está aquí", "Grüße, Mädchen"]
)
def test_what_may_be_western_is_western(text):
    guess = guess_encoding((text + "\n").encode("windows-1252") * 3)
    assert (guess.name, guess.certain) == ("windows-1252", True)


def test_chinese_is_never_taken_for_latin():
    assert guess_encoding("不错".encode("gb18030")).name == "gb18030"


def test_an_encoding_that_is_not_there(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(UsageError, match="there is no encoding 'gbb'") as refused:
        list(lines(str(tmp_path / "a.txt"), "gbb"))
    assert "gb18030" in refused.value.hint


def test_a_workbook_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"PK\x03\x04\0\0")
    with pytest.raises(DataError) as refused:
        list(lines(str(tmp_path / "a.csv")))
    assert "save the sheet as CSV" in refused.value.hint
