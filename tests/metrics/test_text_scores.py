"""Which script a text is in, and whether blanks separate its words."""

import pytest

from seqlab.metrics.text_scores import bleu_tokenizer, corpus_scores, scripts, separates_words

CHINESE = "不错，好吃不贵，送餐速度快\n牛肉炒乌冬请问是细面条吗，牛肉超难嚼，差评！"
JAPANESE = "昨日、友達と一緒に新しい映画を見に行きました。とても面白かったです。"
THAI = "เมื่อวานนี้ฉันไปดูหนังเรื่องใหม่กับเพื่อน สนุกมากจริงๆ"
KHMER = "ម្សិលមិញខ្ញុំបានទៅមើលកុនថ្មីជាមួយមិត្តភក្តិ"
BURMESE = "မနေ့ကသူငယ်ချင်းနဲ့အတူရုပ်ရှင်အသစ်သွားကြည့်ခဲ့တယ်"
LAO = "ມື້ວານນີ້ຂ້ອຍໄປເບິ່ງຮູບເງົາເລື່ອງໃໝ່ກັບໝູ່"
KOREAN = "어제 친구와 함께 새 영화를 보러 갔습니다. 정말 재미있었어요."
HINDI = "यह किताब बहुत अच्छी है और मुझे पसंद आई"
RUSSIAN = "Вчера мы с друзьями ходили смотреть новый фильм."


@pytest.mark.parametrize(
    "text", [CHINESE, JAPANESE, THAI, KHMER, BURMESE, LAO, "MKVLAAGIVGLLLAQWERTYIPASDFGHKLCVNM"]
)
def test_scripts_without_blanks(text):
    assert not separates_words(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            KOREAN,
            HINDI,
            RUSSIAN,
            "How far is it from Denver to Aspen ?",
            "Die Donaudampfschifffahrtsgesellschaft fährt",
        ),
        "我 昨天 和 朋友 去 看 电影 了",  # cut into words by somebody
        "เมื่อวาน ฉัน ไป ดู หนัง กับ เพื่อน",
        *("", "12 34"),
    ],
)
def test_scripts_with_blanks(text):
    assert separates_words(text)


def test_the_shares_of_scripts_add_up_to_one():
    shares = scripts("abc Жук 12 !")
    assert shares == {"LATIN": 0.5, "CYRILLIC": 0.5}
    assert list(scripts(CHINESE)) == ["CJK"]
    assert set(scripts(JAPANESE)) == {"CJK", "HIRAGANA"}
    assert scripts("123") == {}


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        (CHINESE, "zh"),
        (JAPANESE, "char"),
        (KOREAN, "char"),
        (THAI, "char"),
        (HINDI, "13a"),
        (RUSSIAN, "13a"),
        ("", "13a"),
    ],
)
def test_bleu_uses_the_tokenizer_of_the_script_and_names_it(text, tokenizer, monkeypatch):
    monkeypatch.setattr(
        "seqlab.metrics.text_scores.find_spec", lambda name: None
    )  # neither MeCab is installed
    assert bleu_tokenizer(text) == tokenizer
    if text:
        scores = corpus_scores([text], [text])
        assert f"tok:{tokenizer}" in scores["bleu_signature"]
        assert scores["bleu"] == pytest.approx(100)


def test_a_chinese_sentence_that_is_nearly_right_has_a_score():
    """Taken as one word each, two sentences that differ in one character would have nothing in common."""
    scores = corpus_scores(["不错，好吃不贵，送餐速度慢"], ["不错，好吃不贵，送餐速度快"])
    assert scores["bleu"] > 60


def test_mecab_is_used_if_it_is_installed(monkeypatch):
    monkeypatch.setattr("seqlab.metrics.text_scores.find_spec", lambda name: object())
    assert bleu_tokenizer(JAPANESE) == "ja-mecab"
    assert bleu_tokenizer(KOREAN) == "ko-mecab"
