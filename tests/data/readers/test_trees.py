"""Events from trees: hand-made parses with known answers in both label sets, then the readers that stand on them."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paths import DATA as SHARED
from revup.data.events import Document, Event
from revup.data.readers import Options, Record, conllu, read, text
from revup.data.readers.tokens import Token
from revup.data.readers.trees import events, unreached
from revup.errors import InputError, RevupError

needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")

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
    return slots + (" negated" if extra.get("negated") else "") + (" noun" if extra["pos"] == "n" else "")


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
def test_a_sentence_gives_the_same_known_events_in_both_label_sets(name: str, coarse: bool) -> None:
    universal, clearnlp, expected = SENTENCES[name]
    assert found(universal, coarse) == expected
    assert found(clearnlp, coarse) == expected


def test_lemmas_of_arguments_are_the_users_choice_and_the_predicate_keeps_both() -> None:
    spelled = "Cats/cat/NNS/2/nsubj chased/chase/VBD/0/root mice/mouse/NNS/2/obj"
    assert found(spelled) == ["chased cats mice _"]
    (event,) = events(tree(spelled), words="lemma")
    assert (event.pred, event.lemma, event.subj, event.obj) == ("chased", "chase", "cat", "mouse")
    (event,) = events(tree("Cats/cat/NNS/2/nsubj sleep/sleep/VBP/0/root"))
    assert event.lemma is None


def test_a_particle_is_part_of_the_lemma_too() -> None:
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
def test_a_name_is_called_by_its_last_word(name: str, word: str) -> None:
    assert found(name) == [f"sang {word} _ _"]


def test_parses_without_penn_tags_lean_on_endings() -> None:
    def plain(spelled: str) -> list[str]:
        tokens = tree(spelled, coarse=True)
        for token in tokens:
            token.tag, token.lemma = "", ""
        return [shown(event) for event in events(tokens)]

    assert plain("Songs//NNS/0/root composed//VBN/1/acl in//IN/4/case Rome//NNP/2/obl") == ["composed _ songs in"]
    assert plain("Songs//NNS/0/root praising//VBG/1/acl God//NNP/2/obj") == ["praising songs god _"]
    assert plain("Attacks//NNS/2/nsubj stopped//VBD/0/root") == ["attacks _ _ _ noun", "stopped attacks _ _"]


def test_words_that_tokenisers_cut_off_lose_their_hyphen() -> None:
    assert found("-owned/own/VBN/0/root") == ["owned _ _ _"]


def test_a_deep_tree_is_no_deep_recursion() -> None:
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
def test_any_heads_whatsoever_give_events_of_the_sentences_own_words(data: st.DataObject) -> None:
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


# ---- CoNLL-U ---------------------------------------------------------------------------------------------

CONLLU = """\
# newdoc id = first
# sent_id = 1
# text = He won't go.
1	He	he	PRON	PRP	_	4	nsubj	_	_
2-3	won't	_	_	_	_	_	_	_	_
2	wo	will	AUX	MD	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
3.1	really	really	ADV	RB	_	_	_	4:advmod	_
4	go	go	VERB	VB	_	0	root	_	_

1	Stop	stop	VERB	VB	_	0	root	_	_

# newdoc
# text = Rain!
1	Rain	rain	NOUN	NN	_	0	root	_	_
"""


def write(folder: Path, content: str | bytes, name: str = "x.conllu") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_documents_are_cut_at_newdoc_and_words_are_the_integer_rows(tmp_path: Path) -> None:
    first, second = read(write(tmp_path, CONLLU), "conllu")
    assert (first.id, second.id) == ("first", "x.conllu:13")
    assert [shown(event) for event in first.events] == ["go he _ _ negated", "stop _ _ _"]
    assert second.events == []


def test_a_file_without_newdoc_is_one_document(tmp_path: Path) -> None:
    headless = CONLLU.replace("# newdoc id = first\n", "").replace("# newdoc\n", "# newpar\n").replace("\n", "\r\n")
    (document,) = read(write(tmp_path, headless), "conllu")
    assert document.id == "x.conllu:1"
    assert len(document.events) == 2
    assert list(read(write(tmp_path, "# only a comment\n\n"), "conllu")) == []


def test_records_travel_between_processes(tmp_path: Path) -> None:
    for record in conllu.records(write(tmp_path, CONLLU), Options()):
        assert pickle.loads(pickle.dumps(record)) == record


ROW = "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("1\tGo\tgo\tVERB\n", "line 3: expected 10 tab-separated columns, found 4"),
        (ROW.replace("\t0\t", "\t_\t"), "line 3: HEAD: expected the number of a word, or 0 at the root, found '_'"),
        (ROW.replace("\t0\t", "\t-1\t"), "line 3: HEAD: expected the number of a word"),
        (ROW.replace("\t0\t", "\t٣\t"), "line 3: HEAD: expected the number of a word"),
        (
            ROW.replace("\t0\t", "\t7\t"),
            "line 3: HEAD: expected a word of the sentence, 1 to 1, or 0 at the root, found 7",
        ),
        (ROW.replace("\t0\t", "\t1\t"), "line 3: HEAD: the heads form a cycle: 'Go' leads to no root"),
        (
            ROW + "2\ta\ta\tX\t_\t_\t3\tx\t_\t_\n3\tb\tb\tX\t_\t_\t2\tx\t_\t_\n",
            "line 4: HEAD: the heads form a cycle",
        ),
        (ROW.replace("1\t", "2\t", 1), "line 3: ID: expected the number 1, found '2'"),
        (ROW.replace("Go", " "), "line 3: FORM: expected a word, found nothing"),
    ],
)
def test_a_sentence_that_is_no_tree_names_its_line_and_costs_only_its_document(
    tmp_path: Path, bad: str, says: str
) -> None:
    path = write(tmp_path, f"# newdoc id = bad\n# text = bad\n{bad}\n# newdoc id = good\n{ROW}\n")
    with pytest.raises(InputError) as caught:
        list(read(path, "conllu"))
    assert str(caught.value).startswith(f"{path}: {says}")
    errors: list[InputError] = []
    assert [document.id for document in read(path, "conllu", errors.append)] == ["good"]
    assert len(errors) == 1


def test_unreadable_lines_cost_their_document_once(tmp_path: Path) -> None:
    content = f"# newdoc id = bad\n{ROW}\n".encode() + b"\xff\xfe\n\xff\n" + f"# newdoc id = good\n{ROW}\n".encode()
    errors: list[InputError] = []
    assert [document.id for document in read(write(tmp_path, content), "conllu", errors.append)] == ["good"]
    assert [(error.line, "UTF-8" in str(error)) for error in errors] == [(4, True)]


def test_a_truncated_file_gives_its_whole_documents_and_an_error(tmp_path: Path) -> None:
    many = "".join(f"# newdoc id = {number}\n{ROW}\n" for number in range(20000))
    path = write(tmp_path, gzip.compress(many.encode())[:-2000], "x.conllu.gz")
    errors: list[InputError] = []
    identities = [document.id for document in read(path, "conllu", errors.append)]
    assert identities == [str(number) for number in range(len(identities))]
    assert 0 < len(identities) < 20000
    assert len(errors) == 1
    assert "damaged" in str(errors[0])


def test_a_document_without_end_is_an_error_not_a_full_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conllu, "LONGEST_LINE", 300)
    path = write(tmp_path, f"# newdoc\n{ROW}\n" + f"# newdoc\n{ROW * 20}\n" + f"# newdoc\n{ROW}\n")
    errors: list[InputError] = []
    assert len(list(read(path, "conllu", errors.append))) == 2
    assert [error.line for error in errors] == [4]
    assert "mark documents by # newdoc" in str(errors[0])


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    for name, options in (("conllu", {}), ("text", {"spacy_model": "x"})):
        with pytest.raises(InputError, match="expected a file, found a directory"):
            list(read(tmp_path, name, **options))


@given(st.binary(max_size=200), st.integers(0, len(CONLLU)))
def test_mutated_files_give_documents_or_the_clear_error(noise: bytes, at: int) -> None:
    content = CONLLU.encode()[:at] + noise + CONLLU.encode()[at + len(noise) :]
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    with suppress(InputError):
        assert all(isinstance(document, Document) for document in conllu.parse(Record("x", 1, ("", lines)), Options()))


@needs_shared
def test_the_ewt_treebank_has_its_documents_and_sentences() -> None:
    path = str(SHARED / "conllu" / "ewt-dev.conllu.gz")
    trees = [sentence for record in conllu.records(path, Options()) for sentence in conllu.sentences(record)]
    documents = list(read(path, "conllu"))
    assert (len(documents), len(trees)) == (318, 2001)
    assert [shown(event) for event in documents[0].events[:3]] == [
        "comes story ap from",
        "nominated bush individuals on",
        "replace bush jurists _",
    ]


# ---- plain text ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights whose rules parse `X verbs Y`, saved as any model is."""
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    ruler.add([[{"IS_ALPHA": True}]], {"TAG": "NN", "POS": "NOUN", "DEP": "dep"})
    for verb in ("chased", "saw"):
        ruler.add([[{"LOWER": verb}]], {"TAG": "VBD", "POS": "VERB", "DEP": "ROOT", "LEMMA": verb})
    pipeline.add_pipe("sentencizer")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    pipeline.to_disk(folder)
    return folder


def archived(folder: Path, target: Path) -> Path:
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w") as packed:
            for file in sorted(folder.rglob("*")):
                packed.write(file, f"outer/{folder.name}/{file.relative_to(folder)}")
    else:
        with tarfile.open(target, "w:xz") as rolled:
            rolled.add(folder, f"outer/{folder.name}")
    return target


@pytest.fixture(autouse=True)
def fresh_models() -> None:
    text.load_model.cache_clear()


def events_by_line(path: str, model: Path, **options: str) -> list[tuple[str, list[str]]]:
    documents = read(path, "text", spacy_model=str(model), **options)
    return [(document.id, [event.pred for event in document.events]) for document in documents]


def test_models_come_as_directories_and_archives(tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "Cats chased mice.\n\nDogs saw cats. Cats saw dogs.\n", "x.txt")
    expected = [("x.txt:1", ["chased"]), ("x.txt:3", ["saw", "saw"])]
    for model in (tiny_model, archived(tiny_model, tmp_path / "m.zip"), archived(tiny_model, tmp_path / "m.tar.xz")):
        assert events_by_line(path, model) == expected


def test_a_file_may_be_a_document_of_paragraphs(tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "\nCats\nchased mice\n \nDogs saw cats", "x.txt")
    assert events_by_line(path, tiny_model, document="file") == [("x.txt:1", ["chased", "saw"])]
    assert events_by_line(write(tmp_path, "\n \n", "y.txt"), tiny_model, document="file") == []


def test_batches_keep_order_and_bad_lines_keep_their_numbers(tiny_model: Path, tmp_path: Path) -> None:
    rows = [b"Cats chased mice %d" % number for number in range(100)]
    rows[40], rows[70] = b"\xff\xfe", b"Cats saw " + b"x" * text.LONGEST_TEXT
    path = write(tmp_path, b"\n".join(rows), "x.txt")
    errors: list[InputError] = []
    documents = list(read(path, "text", errors.append, spacy_model=str(tiny_model)))
    assert [document.id for document in documents] == [f"x.txt:{n + 1}" for n in range(100) if n not in (40, 70)]
    assert [error.line for error in errors] == [41, 71]
    options = Options(spacy_model="x")
    records = list(text.records(path, options))
    assert [len(record.data) for record in records if isinstance(record.data, list)] == [32, 8, 29, 29]
    assert pickle.loads(pickle.dumps(records[0])) == records[0]


@pytest.mark.parametrize("content", [b"Cats\n\xff\n", b"x" * 2000, b"word " * 300 + b"\n\nword"])
def test_a_file_that_is_no_document_is_one_error(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 1800)
    monkeypatch.setattr(text, "LONGEST_TEXT", 1000)
    errors: list[InputError] = []
    path = write(tmp_path, content, "x.txt")
    assert list(read(path, "text", errors.append, spacy_model=str(tiny_model), document="file")) == []
    assert len(errors) == 1
    assert errors[0].line


def test_what_is_wrong_with_a_model_is_said_in_a_line(tiny_model: Path, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    path = write(tmp_path, "Cats chased mice.\n", "x.txt")

    def message(**options: str) -> str:
        with pytest.raises(RevupError) as caught:
            list(read(path, "text", **options))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "needs a spaCy model" in message()
    assert "document: expected line or file, found 'page'" in message(spacy_model="x", document="page")
    assert "no spaCy model 'no_such_model'" in message(spacy_model="no_such_model")
    assert "found another file" in message(spacy_model=path)
    assert "no config.cfg" in message(spacy_model=str(tmp_path))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.cfg").write_text("[nlp")
    assert "not a spaCy model that can be loaded" in message(spacy_model=str(tmp_path / "broken"))
    assert "not a spaCy model that can be loaded" in message(spacy_model="numpy")
    spacy.blank("en").to_disk(tmp_path / "blank")
    assert "no parser" in message(spacy_model=str(tmp_path / "blank"))
    pipeline = spacy.blank("en")
    pipeline.add_pipe("attribute_ruler").add([[{"IS_ALPHA": True}]], {"DEP": "dep"})
    pipeline.to_disk(tmp_path / "untagged")
    assert "no tagger" in message(spacy_model=str(tmp_path / "untagged"))
    whole = archived(tiny_model, tmp_path / "m.tar.xz").read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: len(whole) - 200])
    assert "damaged" in message(spacy_model=str(tmp_path / "cut.tar.xz"))


def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path) -> None:
    path = write(tmp_path, "Cats chased mice.\n", "x.txt")
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as rolled:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = 2
        rolled.addfile(member, io.BytesIO(b"hi"))
    with pytest.raises(RevupError, match="damaged"):
        list(read(path, "text", spacy_model=str(evil)))
    assert not list(tmp_path.rglob("escaped.txt"))


def test_without_spacy_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(RevupError, match=r"pip install 'revup\[text\]'"):
        list(read(write(tmp_path, "Cats chased mice.\n", "x.txt"), "text", spacy_model="x"))


@needs_shared
@pytest.mark.slow
def test_wikipedia_through_the_shared_pipeline(tmp_path: Path) -> None:
    model = str(SHARED / "text" / "en_ud_small.tar.xz")
    path = str(SHARED / "text" / "wiki.txt.gz")
    assert sum(len(record.data) for record in text.records(path, Options(spacy_model=model))) == 500
    sentences = "The man was convicted of murder by the jury. He stopped working and moved to Paris.\n"
    (document,) = read(write(tmp_path, sentences, "x.txt"), "text", spacy_model=model)
    first, *_, stopped, working, moved = map(shown, document.events)
    assert first == "convicted jury man of"
    assert [stopped, working, moved] == ["stopped he _ _", "working he _ _", "moved he paris to"]
