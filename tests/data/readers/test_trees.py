"""Events of hand-made dependency trees with known answers, in both label sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revup.data.events import Event
from revup.data.readers.english import Token
from revup.data.readers.trees import events, unreached

UPOS = {"VB": "VERB", "NNP": "PROPN", "NN": "NOUN", "PRP": "PRON", "WP": "PRON", "WDT": "PRON", "IN": "ADP"}
UPOS |= {"RP": "ADP", "CD": "NUM", "DT": "DET", "MD": "AUX", "RB": "ADV", "JJ": "ADJ", "TO": "PART"}


def tree(spelled: str, coarse: bool = False) -> list[Token]:
    """Words written as form/lemma/tag/head/label; `coarse` adds coarse tags, as spaCy's own models do."""
    tokens = []
    for index, word in enumerate(spelled.split(), 1):
        form, lemma, tag, head, label = word.split("/")
        upos = next((upos for start, upos in UPOS.items() if tag.startswith(start)), "X") if coarse else ""
        if coarse and label in ("aux", "auxpass", "aux:pass", "cop"):
            upos = "AUX"
        tokens.append(Token(index, form, lemma, upos, tag, int(head), label))
    return tokens


def found(spelled: str, coarse: bool = False, words: str = "form") -> list[str]:
    """Each event as `pred subj obj mod`, with what is special about it behind."""
    return [shown(event) for event in events(tree(spelled, coarse), words)]


def shown(event: Event) -> str:
    slots = " ".join(slot or "_" for slot in (event.pred, event.subj, event.obj, event.mod))
    extra = event.extra or {}
    return slots + (" negated" if extra.get("negated") else "") + (" noun" if event.pos == "n" else "")


# one sentence a row: Universal Dependencies, ClearNLP, the events of either
SENTENCES = {
    "passive": (
        "The/the/DT/2/det man/man/NN/4/nsubj:pass was/be/VBD/4/aux:pass convicted/convict/VBN/0/root "
        "of/of/IN/6/case murder/murder/NNP/4/obl by/by/IN/9/case the/the/DT/9/det jury/jury/NN/4/obl:agent",
        "The/the/DT/2/det man/man/NN/4/nsubjpass was/be/VBD/4/auxpass convicted/convict/VBN/0/ROOT "
        "of/of/IN/4/prep murder/murder/NNP/5/pobj by/by/IN/4/agent the/the/DT/9/det jury/jury/NN/7/pobj",
        ["convicted jury man of"],
    ),
    "passive without an agent": (
        "He/he/PRP/3/nsubj:pass was/be/VBD/3/aux:pass born/bear/VBN/0/root in/in/IN/5/case Rome/Rome/NNP/3/obl",
        "He/he/PRP/3/nsubjpass was/be/VBD/3/auxpass born/bear/VBN/0/ROOT in/in/IN/3/prep Rome/Rome/NNP/4/pobj",
        ["born _ he in"],
    ),
    "passive with an object left": (
        "He/he/PRP/3/nsubj:pass was/be/VBD/3/aux:pass given/give/VBN/0/root prizes/prize/NNS/3/obj "
        "by/by/IN/6/case mayors/mayor/NNS/3/obl:agent",
        "He/he/PRP/3/nsubjpass was/be/VBD/3/auxpass given/give/VBN/0/ROOT prizes/prize/NNS/3/dobj "
        "by/by/IN/3/agent mayors/mayor/NNS/5/pobj",
        ["given mayors prizes _"],
    ),
    "by a date is nobody": (
        "It/it/PRP/3/nsubj:pass was/be/VBD/3/aux:pass built/build/VBN/0/root by/by/IN/5/case 1990/1990/CD/3/obl",
        "It/it/PRP/3/nsubjpass was/be/VBD/3/auxpass built/build/VBN/0/ROOT by/by/IN/3/prep 1990/1990/CD/4/pobj",
        ["built _ it by"],
    ),
    "preposition's noun in the place of an object": (
        "She/she/PRP/2/nsubj moved/move/VBD/0/root in/in/IN/4/case May/May/NNP/2/obl "
        "to/to/IN/6/case Paris/Paris/NNP/2/obl",
        "She/she/PRP/2/nsubj moved/move/VBD/0/ROOT in/in/IN/2/prep May/May/NNP/3/pobj "
        "to/to/IN/2/prep Paris/Paris/NNP/5/pobj",
        ["moved she paris to"],
    ),
    "preposition of two words": (
        "It/it/PRP/2/nsubj failed/fail/VBD/0/root because/because/IN/5/case of/of/IN/3/fixed rain/rain/NN/2/obl",
        "It/it/PRP/2/nsubj failed/fail/VBD/0/ROOT because/because/IN/2/prep of/of/IN/3/pcomp rain/rain/NN/4/pobj",
        ["failed it rain because-of"],
    ),
    "particle and negation": (
        "They/they/PRP/4/nsubj did/do/VBD/4/aux not/not/RB/4/advmod carry/carry/VB/0/root "
        "out/out/RP/4/compound:prt orders/order/NNS/4/obj",
        "They/they/PRP/4/nsubj did/do/VBD/4/aux not/not/RB/4/neg carry/carry/VB/0/ROOT "
        "out/out/RP/4/prt orders/order/NNS/4/dobj",
        ["carry-out they orders _ negated"],
    ),
    "two objects": (
        "She/she/PRP/2/nsubj gave/give/VBD/0/root him/he/PRP/2/iobj books/book/NNS/2/obj",
        "She/she/PRP/2/nsubj gave/give/VBD/0/ROOT him/he/PRP/2/dative books/book/NNS/2/dobj",
        ["gave she books _"],
    ),
    "recipient behind a preposition": (
        "She/she/PRP/2/nsubj gave/give/VBD/0/root books/book/NNS/2/obj to/to/IN/5/case him/he/PRP/2/obl",
        "She/she/PRP/2/nsubj gave/give/VBD/0/ROOT books/book/NNS/2/dobj to/to/IN/2/dative him/he/PRP/4/pobj",
        ["gave she books to"],
    ),
    "clausal complement": (
        "He/he/PRP/2/nsubj said/say/VBD/0/root prices/price/NNS/4/nsubj rose/rise/VBD/2/ccomp",
        "He/he/PRP/2/nsubj said/say/VBD/0/ROOT prices/price/NNS/4/nsubj rose/rise/VBD/2/ccomp",
        ["said he _ _", "rose prices _ _"],
    ),
    "controlled by the subject": (
        "He/he/PRP/2/nsubj refused/refuse/VBD/0/root to/to/TO/4/mark leave/leave/VB/2/xcomp",
        "He/he/PRP/2/nsubj refused/refuse/VBD/0/ROOT to/to/TO/4/aux leave/leave/VB/2/xcomp",
        ["refused he _ _", "leave he _ _"],
    ),
    "controlled by the object": (
        "She/she/PRP/2/nsubj forced/force/VBD/0/root him/he/PRP/2/obj to/to/TO/5/mark leave/leave/VB/2/xcomp",
        "She/she/PRP/2/nsubj forced/force/VBD/0/ROOT him/he/PRP/2/dobj to/to/TO/5/aux leave/leave/VB/2/xcomp",
        ["forced she him _", "leave him _ _"],
    ),
    "controlled by the subject of a passive": (
        "He/he/PRP/3/nsubj:pass was/be/VBD/3/aux:pass forced/force/VBN/0/root to/to/TO/5/mark leave/leave/VB/3/xcomp",
        "He/he/PRP/3/nsubjpass was/be/VBD/3/auxpass forced/force/VBN/0/ROOT to/to/TO/5/aux leave/leave/VB/3/xcomp",
        ["forced _ he _", "leave he _ _"],
    ),
    "promise": (
        "He/he/PRP/2/nsubj promised/promise/VBD/0/root her/she/PRP/2/obj to/to/TO/5/mark come/come/VB/2/xcomp",
        "He/he/PRP/2/nsubj promised/promise/VBD/0/ROOT her/she/PRP/2/dobj to/to/TO/5/aux come/come/VB/2/xcomp",
        ["promised he her _", "come he _ _"],
    ),
    "going to": (
        "He/he/PRP/3/nsubj is/be/VBZ/3/aux going/go/VBG/0/root to/to/TO/5/mark sell/sell/VB/3/xcomp it/it/PRP/5/obj",
        "He/he/PRP/3/nsubj is/be/VBZ/3/aux going/go/VBG/0/ROOT to/to/TO/5/aux sell/sell/VB/3/xcomp it/it/PRP/5/dobj",
        ["sell he it _"],
    ),
    "relative clause, its subject": (
        "Men/man/NNS/5/nsubj who/who/WP/3/nsubj stole/steal/VBD/1/acl:relcl cars/car/NNS/3/obj fled/flee/VBD/0/root",
        "Men/man/NNS/5/nsubj who/who/WP/3/nsubj stole/steal/VBD/1/relcl cars/car/NNS/3/dobj fled/flee/VBD/0/ROOT",
        ["stole men cars _", "fled men _ _"],
    ),
    "relative clause, its object": (
        "Cars/car/NNS/5/nsubj which/which/WDT/4/obj men/man/NNS/4/nsubj stole/steal/VBD/1/acl:relcl "
        "burned/burn/VBD/0/root",
        "Cars/car/NNS/5/nsubj which/which/WDT/4/dobj men/man/NNS/4/nsubj stole/steal/VBD/1/relcl "
        "burned/burn/VBD/0/ROOT",
        ["stole men cars _", "burned cars _ _"],
    ),
    "relative clause without a pronoun": (
        "Cars/car/NNS/4/nsubj men/man/NNS/3/nsubj stole/steal/VBD/1/acl:relcl burned/burn/VBD/0/root",
        "Cars/car/NNS/4/nsubj men/man/NNS/3/nsubj stole/steal/VBD/1/relcl burned/burn/VBD/0/ROOT",
        ["stole men cars _", "burned cars _ _"],
    ),
    "relative clause whose gap is further down": (
        "Cars/car/NNS/6/nsubj men/man/NNS/3/nsubj wanted/want/VBD/1/acl:relcl to/to/TO/5/mark steal/steal/VB/3/xcomp "
        "burned/burn/VBD/0/root",
        "Cars/car/NNS/6/nsubj men/man/NNS/3/nsubj wanted/want/VBD/1/relcl to/to/TO/5/aux steal/steal/VB/3/xcomp "
        "burned/burn/VBD/0/ROOT",
        ["wanted men _ _", "steal men cars _", "burned cars _ _"],
    ),
    "relative clause of a day": (
        "The/the/DT/2/det day/day/NN/0/root he/he/PRP/4/nsubj died/die/VBD/2/acl:relcl",
        "The/the/DT/2/det day/day/NN/0/ROOT he/he/PRP/4/nsubj died/die/VBD/2/relcl",
        ["died he _ _"],
    ),
    "relative clause with where": (
        "Towns/town/NNS/0/root where/where/WRB/4/advmod he/he/PRP/4/nsubj sang/sing/VBD/1/acl:relcl",
        "Towns/town/NNS/0/ROOT where/where/WRB/4/advmod he/he/PRP/4/nsubj sang/sing/VBD/1/relcl",
        ["sang he _ _"],
    ),
    "preposition before a relative pronoun": (
        "Towns/town/NNS/0/root in/in/IN/3/case which/which/WDT/5/obl he/he/PRP/5/nsubj lived/live/VBD/1/acl:relcl",
        "Towns/town/NNS/0/ROOT in/in/IN/5/prep which/which/WDT/2/pobj he/he/PRP/5/nsubj lived/live/VBD/1/relcl",
        ["lived he towns in"],
    ),
    "stranded preposition": (
        "Towns/town/NNS/0/root he/he/PRP/3/nsubj lived/live/VBD/1/acl:relcl in/in/IN/3/obl",
        "Towns/town/NNS/0/ROOT he/he/PRP/3/nsubj lived/live/VBD/1/relcl in/in/IN/3/prep",
        ["lived he towns in"],
    ),
    "participles behind a noun": (
        "Songs/song/NNS/0/root written/write/VBN/1/acl by/by/IN/4/case Bach/Bach/NNP/2/obl:agent "
        "praising/praise/VBG/1/acl God/God/NNP/5/obj",
        "Songs/song/NNS/0/ROOT written/write/VBN/1/acl by/by/IN/2/agent Bach/Bach/NNP/3/pobj "
        "praising/praise/VBG/1/acl God/God/NNP/5/dobj",
        ["written bach songs _", "praising songs god _"],
    ),
    "participle before a noun is no event": (
        "Stolen/steal/VBN/2/amod cars/car/NNS/3/nsubj burn/burn/VBP/0/root",
        "Stolen/steal/VBN/2/amod cars/car/NNS/3/nsubj burn/burn/VBP/0/ROOT",
        ["burn cars _ _"],
    ),
    "participle clause": (
        "Released/release/VBN/4/advcl in/in/IN/3/case May/May/NNP/1/obl sold/sell/VBD/0/root it/it/PRP/4/nsubj",
        "Released/release/VBN/4/advcl in/in/IN/1/prep May/May/NNP/2/pobj sold/sell/VBD/0/ROOT it/it/PRP/4/nsubj",
        ["released _ it in", "sold it _ _"],
    ),
    "gerund behind a preposition": (
        "He/he/PRP/2/nsubj left/leave/VBD/0/root without/without/IN/4/mark paying/pay/VBG/2/advcl her/she/PRP/4/obj",
        "He/he/PRP/2/nsubj left/leave/VBD/0/ROOT without/without/IN/2/prep paying/pay/VBG/3/pcomp her/she/PRP/4/dobj",
        ["left he _ _", "paying he her _ negated"],
    ),
    "purpose of a passive": (
        "It/it/PRP/3/nsubj:pass was/be/VBD/3/aux:pass passed/pass/VBN/0/root to/to/TO/5/mark help/help/VB/3/advcl",
        "It/it/PRP/3/nsubjpass was/be/VBD/3/auxpass passed/pass/VBN/0/ROOT to/to/TO/5/aux help/help/VB/3/advcl",
        ["passed _ it _", "help _ _ _"],
    ),
    "conjunction, shared subject": (
        "He/he/PRP/2/nsubj ran/run/VBD/0/root and/and/CC/4/cc hid/hide/VBD/2/conj it/it/PRP/4/obj",
        "He/he/PRP/2/nsubj ran/run/VBD/0/ROOT and/and/CC/2/cc hid/hide/VBD/2/conj it/it/PRP/4/dobj",
        ["ran he _ _", "hid he it _"],
    ),
    "conjunction, shared object and modifier": (
        "He/he/PRP/2/nsubj bought/buy/VBD/0/root and/and/CC/4/cc sold/sell/VBD/2/conj gold/gold/NN/2/obj "
        "in/in/IN/7/case Rome/Rome/NNP/2/obl",
        "He/he/PRP/2/nsubj bought/buy/VBD/0/ROOT and/and/CC/2/cc sold/sell/VBD/2/conj gold/gold/NN/2/dobj "
        "in/in/IN/2/prep Rome/Rome/NNP/6/pobj",
        ["bought he gold in", "sold he gold in"],
    ),
    "conjunction, the first one's object is its own": (
        "He/he/PRP/2/nsubj took/take/VBD/0/root it/it/PRP/2/obj and/and/CC/5/cc ran/run/VBD/2/conj",
        "He/he/PRP/2/nsubj took/take/VBD/0/ROOT it/it/PRP/2/dobj and/and/CC/2/cc ran/run/VBD/2/conj",
        ["took he it _", "ran he _ _"],
    ),
    "conjunction of passives, agent on the first": (
        "It/it/PRP/3/nsubj:pass was/be/VBD/3/aux:pass bought/buy/VBN/0/root and/and/CC/5/cc sold/sell/VBN/3/conj "
        "by/by/IN/7/case men/man/NNS/3/obl:agent",
        "It/it/PRP/3/nsubjpass was/be/VBD/3/auxpass bought/buy/VBN/0/ROOT and/and/CC/3/cc sold/sell/VBN/3/conj "
        "by/by/IN/3/agent men/man/NNS/6/pobj",
        ["bought men it _", "sold men it _"],
    ),
    "conjunction of passives, agent on the last": (
        "It/it/PRP/3/nsubj:pass was/be/VBD/3/aux:pass bought/buy/VBN/0/root and/and/CC/5/cc sold/sell/VBN/3/conj "
        "by/by/IN/7/case men/man/NNS/5/obl:agent",
        "It/it/PRP/3/nsubjpass was/be/VBD/3/auxpass bought/buy/VBN/0/ROOT and/and/CC/3/cc sold/sell/VBN/3/conj "
        "by/by/IN/5/agent men/man/NNS/6/pobj",
        ["bought men it _", "sold men it _"],
    ),
    "conjunction of an active and a passive": (
        "He/he/PRP/2/nsubj fled/flee/VBD/0/root but/but/CC/5/cc was/be/VBD/5/aux:pass caught/catch/VBN/2/conj",
        "He/he/PRP/2/nsubj fled/flee/VBD/0/ROOT but/but/CC/2/cc was/be/VBD/5/auxpass caught/catch/VBN/2/conj",
        ["fled he _ _", "caught _ he _"],
    ),
    "conjunction under one perfect": (
        "He/he/PRP/3/nsubj has/have/VBZ/3/aux seen/see/VBN/0/root and/and/CC/5/cc heard/hear/VBN/3/conj "
        "her/she/PRP/5/obj",
        "He/he/PRP/3/nsubj has/have/VBZ/3/aux seen/see/VBN/0/ROOT and/and/CC/3/cc heard/hear/VBN/3/conj "
        "her/she/PRP/5/dobj",
        ["seen he _ _", "heard he her _"],
    ),
    "copulas are no events, what hangs on them is": (
        "He/he/PRP/3/nsubj is/be/VBZ/3/cop ready/ready/JJ/0/root to/to/TO/5/mark fight/fight/VB/3/xcomp",
        "He/he/PRP/2/nsubj is/be/VBZ/0/ROOT ready/ready/JJ/2/acomp to/to/TO/5/aux fight/fight/VB/3/xcomp",
        ["fight he _ _"],
    ),
    "became": (
        "He/he/PRP/2/nsubj became/become/VBD/0/root king/king/NN/2/xcomp in/in/IN/5/case 1066/1066/CD/2/obl",
        "He/he/PRP/2/nsubj became/become/VBD/0/ROOT king/king/NN/2/attr in/in/IN/2/prep 1066/1066/CD/4/pobj",
        ["became he king in"],
    ),
    "became, of an adjective": (
        "He/he/PRP/2/nsubj became/become/VBD/0/root rich/rich/JJ/2/xcomp in/in/IN/5/case 1066/1066/CD/2/obl",
        "He/he/PRP/2/nsubj became/become/VBD/0/ROOT rich/rich/JJ/2/acomp in/in/IN/2/prep 1066/1066/CD/4/pobj",
        ["became he _ in"],
    ),
    "noun": (
        "The/the/DT/2/det bombing/bombing/NN/7/nsubj of/of/IN/4/case Dresden/Dresden/NNP/2/nmod "
        "by/by/IN/6/case planes/plane/NNS/2/nmod shocked/shock/VBD/0/root us/we/PRP/7/obj",
        "The/the/DT/2/det bombing/bombing/NN/7/nsubj of/of/IN/2/prep Dresden/Dresden/NNP/3/pobj "
        "by/by/IN/2/prep planes/plane/NNS/5/pobj shocked/shock/VBD/0/ROOT us/we/PRP/7/dobj",
        ["bombing planes dresden _ noun", "shocked bombing us _"],
    ),
    "noun with its owner": (
        "Rome/Rome/NNP/3/nmod:poss 's/'s/POS/1/case attacks/attack/NNS/0/root on/on/IN/5/case Troy/Troy/NNP/3/nmod",
        "Rome/Rome/NNP/3/poss 's/'s/POS/1/case attacks/attack/NNS/0/ROOT on/on/IN/3/prep Troy/Troy/NNP/4/pobj",
        ["attacks rome troy on noun"],
    ),
    "noun whose owner suffers": (
        "Its/its/PRP$/2/nmod:poss destruction/destruction/NN/0/root by/by/IN/4/case Rome/Rome/NNP/2/nmod",
        "Its/its/PRP$/2/poss destruction/destruction/NN/0/ROOT by/by/IN/2/prep Rome/Rome/NNP/3/pobj",
        ["destruction rome its _ noun"],
    ),
    "noun under a verb that says little": (
        "He/he/PRP/2/nsubj made/make/VBD/0/root no/no/DT/4/det speech/speech/NN/2/obj",
        "He/he/PRP/2/nsubj made/make/VBD/0/ROOT no/no/DT/4/det speech/speech/NN/2/dobj",
        ["made he speech _", "speech he _ _ negated noun"],
    ),
    "nominalisation with both of its arguments": (
        "The/the/DT/2/det editing/editing/NN/0/root of/of/IN/4/case texts/text/NNS/2/nmod "
        "by/by/IN/6/case monks/monk/NNS/2/nmod",
        "The/the/DT/2/det editing/editing/NN/0/ROOT of/of/IN/2/prep texts/text/NNS/3/pobj "
        "by/by/IN/2/prep monks/monk/NNS/5/pobj",
        ["editing monks texts _ noun"],
    ),
    "nouns that name no event": (
        "The/the/DT/2/det nation/nation/NN/0/root of/of/IN/4/case kings/king/NNS/2/nmod",
        "The/the/DT/2/det nation/nation/NN/0/ROOT of/of/IN/2/prep kings/king/NNS/3/pobj",
        [],
    ),
}


@pytest.mark.parametrize("coarse", [False, True], ids=["fine-tags", "coarse-tags"])
@pytest.mark.parametrize("name", SENTENCES)
def test_sentence_gives_known_events_in_both_label_sets(name: str, coarse: bool) -> None:
    universal, clearnlp, expected = SENTENCES[name]
    assert found(universal, coarse) == expected
    assert found(clearnlp, coarse) == expected


def test_arguments_as_forms_or_lemmas() -> None:
    spelled = "Cats/cat/NNS/2/nsubj chased/chase/VBD/0/root mice/mouse/NNS/2/obj"
    assert found(spelled) == ["chased cats mice _"]
    (event,) = events(tree(spelled), words="lemma")
    assert (event.pred, event.lemma, event.subj, event.obj) == ("chased", "chase", "cat", "mouse")
    (event,) = events(tree("Cats/cat/NNS/2/nsubj sleep/sleep/VBP/0/root"))
    assert event.lemma is None


def test_particle_is_part_of_the_lemma() -> None:
    (event,) = events(tree("He/he/PRP/2/nsubj carried/carry/VBD/0/root out/out/RP/2/compound:prt it/it/PRP/2/obj"))
    assert (event.pred, event.lemma) == ("carried-out", "carry-out")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Anna/Anna/NNP/4/nsubj Maria/Maria/NNP/1/flat Bach/Bach/NNP/1/flat sang/sing/VBD/0/root", "bach"),
        ("Martin/M/NNP/4/nsubj King/King/NNP/1/flat Jr./Jr./NNP/1/flat sang/sing/VBD/0/root", "king"),
        ("Rock/rock/NN/4/nsubj and/and/CC/1/flat roll/roll/NN/1/flat sang/sing/VBD/0/root", "rock"),
        ("New-York/x/NNP/2/nsubj sang/sing/VBD/0/root", "new-york"),
    ],
)
def test_name_is_represented_by_its_last_word(name: str, word: str) -> None:
    assert found(name) == [f"sang {word} _ _"]


def test_parses_without_penn_tags_use_endings() -> None:
    def plain(spelled: str) -> list[str]:
        tokens = tree(spelled, coarse=True)
        for token in tokens:
            token.tag, token.lemma = "", ""
        return [shown(event) for event in events(tokens)]

    assert plain("Songs//NNS/0/root composed//VBN/1/acl in//IN/4/case Rome//NNP/2/obl") == ["composed _ songs in"]
    assert plain("Songs//NNS/0/root praising//VBG/1/acl God//NNP/2/obj") == ["praising songs god _"]
    assert plain("Attacks//NNS/2/nsubj stopped//VBD/0/root") == ["attacks _ _ _ noun", "stopped attacks _ _"]


def test_leading_hyphen_is_removed() -> None:
    assert found("-owned/own/VBN/0/root") == ["owned _ _ _"]


def test_deep_tree_needs_no_recursion() -> None:
    words = ["He/he/PRP/2/nsubj", "tried/try/VBD/0/root"]
    words += [f"try/try/VB/{head}/xcomp" for head in range(2, 5000)]
    assert found(" ".join(words))[-1] == "try he _ _"


LABELS = """
    root nsubj nsubjpass nsubj:pass obj dobj iobj dative obl obl:agent nmod prep pobj agent pcomp case conj cc xcomp
    ccomp advcl acl acl:relcl relcl aux aux:pass cop mark compound:prt flat amod acomp poss
"""


WORDS = st.sampled_from(["saw", "war", "by", "who", "to", "not", "is", "1990", "-", "going"])


TAGS = st.sampled_from(["VBD", "VBN", "VBG", "NN", "NNP", "IN", "WP", "CD", "RP", "TO", ""])


@given(st.data())
def test_any_heads_give_events_of_the_sentence(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 12))
    labels, heads = st.sampled_from(LABELS.split()), st.integers(0, size)
    sentence = []
    for index in range(1, size + 1):
        form = data.draw(WORDS)
        sentence.append(Token(index, form, form, "", data.draw(TAGS), data.draw(heads), data.draw(labels)))
    forms = {token.form for token in sentence}
    for event in events(sentence):
        assert set(event.pred.split("-")) <= forms | {""}
        assert {event.subj, event.obj} <= forms | {None}

    def has_root(token: Token) -> bool:
        for _ in sentence:
            if token.head == 0:
                return True
            token = sentence[token.head - 1]
        return False

    assert unreached(sentence) == [token for token in sentence if not has_root(token)]
