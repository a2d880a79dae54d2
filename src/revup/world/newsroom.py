"""The words of the built-in newsroom: its frames, predicates, nouns and prepositions.

The first 50 frames are written by hand, five to a desk; further frames are those of special desks (Border_Arrest).
Where the lists run out, pronounceable words are invented.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NewsFrame(NamedTuple):
    """A frame of the newsroom: its name, its own predicate, and the words it prefers in each slot."""

    name: str
    verb: str
    subj: tuple[str, ...] = ()
    obj: tuple[str, ...] = ()
    mod: tuple[str, ...] = ()


def news_frame(index: int) -> NewsFrame:
    """Return the index-th frame: those written by hand first, then those of special desks."""
    lines = NEWSROOM.strip().splitlines()
    special, place = divmod(index, len(lines))
    name, verb, subj, obj, mod = (part.strip() for part in lines[place].split("|"))
    if special == 0:
        return NewsFrame(name, verb, tuple(subj.split()), tuple(obj.split()), tuple(mod.split()))
    qualifier = QUALIFIERS.split()[special - 1]
    return NewsFrame(f"{qualifier}_{name}", f"{qualifier.lower()}-{verb}")


def name_words(
    rng: np.random.Generator, frames: list[NewsFrame], predicates: int, words: int
) -> tuple[list[str], list[str]]:
    """Return predicates (each frame's own first) and nouns (the common ones first), `words` distinct words in all."""
    own = [frame.verb for frame in frames]
    verbs = [*own, *rng.permutation(GENERAL_VERBS.split()).tolist()][:predicates]
    favourites = dict.fromkeys(noun for frame in frames for noun in (*frame.subj, *frame.obj))
    common = list(dict.fromkeys([*GENERAL_NOUNS.split(), *favourites]))
    nouns = [common[index] for index in rng.permutation(len(common))][: words - predicates]
    taken = {*verbs, *nouns, *PREPOSITIONS.split()}
    verbs += _invent(rng, predicates - len(verbs), "ed", taken)
    nouns += _invent(rng, words - predicates - len(nouns), "", taken)
    return verbs, nouns


def _invent(rng: np.random.Generator, count: int, ending: str, taken: set[str]) -> list[str]:
    """Invent distinct pronounceable words of two or three syllables that are not taken yet."""
    syllables = [onset + vowel for onset in ONSETS.split() for vowel in VOWELS.split()]
    base, invented = len(syllables), list[str]()
    space = base * base * len(CODAS)
    space *= 1 if 2 * count < space else base
    for number in rng.choice(space, min(space, count + len(taken)), replace=False).tolist():
        rest, coda = divmod(number, len(CODAS))
        rest, last = divmod(rest, base)
        third, middle = divmod(rest, base)
        word = (syllables[third - 1] if third else "") + syllables[middle] + syllables[last] + CODAS[coda] + ending
        if word not in taken:
            taken.add(word)
            invented.append(word)
    return invented[:count]


ONSETS = "b c d f g h j k l m n p r s t v w z br dr gl kr pl st tr"
VOWELS = "a e i o u ai ea"
CODAS = "lmnrsk"

PREPOSITIONS = """
    in to of on at for by with from after over against before under near during into about through between among
    across amid around behind beyond despite toward within without
"""

GENERAL_VERBS = """
    held took made won lost faced called opened closed raised cut hit struck moved pressed dropped ended led met backed
    fought pushed pulled joined left entered crossed reached passed named cleared delayed blocked broke carried caught
    challenged changed checked claimed covered declared defended denied drew drove expected extended failed filed fired
    followed forced found freed gained gave granted handled heard helped hosted issued kept launched lifted managed
    marked missed offered ordered paid planned played posted praised prepared pressured promised proposed protected
    pursued questioned quit received recorded refused rejected released removed replaced reported requested returned
    reviewed ruled sealed searched seized sent served settled shared shook showed shut signed slowed sought spread
    started stopped supported suspended targeted tested threatened tied told tracked traded turned urged used visited
    voted waited walked warned watched welcomed withdrew worked wrote accepted added admitted allowed answered applied
    approved asked assumed attended avoided began bound brought built charged chose cited cost counted created
"""

GENERAL_NOUNS = """
    man woman city government official group people country state leader member family company president minister
    spokesman mother father child student teacher crowd police army court union bank party team council mayor governor
    senator agency board committee director manager owner doctor lawyer expert neighbour visitor resident farmer driver
    soldier pilot sailor worker plan report deal law rule letter message decision meeting question answer case house
    street town village river bridge road border port station office school church hospital market factory farm shop
    money price tax budget debt loan share stock fund gift oil gas water food land ship train plane car truck weapon
    fire film book song paper photo record speech promise order offer claim charge demand threat risk attack result
"""

QUALIFIERS = """
    Border Tax Bank Farm Port School Rail Mining Prison Church Harbour Palace Forest Coastal Island Desert Mountain
    Royal Federal Village Airline Fishing Housing Insurance Media Museum Navy Oil Police Power River Senate Space
    Steel Student Tourist Treasury Trade Union Winter
"""

# name | its own predicate | subjects | objects | modifiers; five to a desk, in the order in which such stories go
NEWSROOM = """
    Arrest | arrested | police officers detectives patrol | suspect gunman fugitive thief | in near after
    Indictment | indicted | prosecutor jurors attorney state | banker smuggler clerk suspect | for on over
    Trial | testified | witness lawyer defendant victim | court evidence alibi jury | before against at
    Verdict | convicted | jury court judge panel | defendant man killer thief | of on after
    Sentencing | sentenced | judge court magistrate tribunal | killer man smuggler prison | to for under
    Campaign | campaigned | candidate senator activist party | voters towns donors rally | in for across
    Debate | debated | candidate rival moderator challenger | taxes rival question policy | with about on
    Election | elected | voters citizens party district | mayor president candidate council | by in with
    Recount | recounted | clerks officials board observers | ballots votes margin precinct | after under amid
    Inauguration | inaugurated | president mayor governor bishop | oath term crowd office | at before with
    Storm | battered | storm hurricane winds gale | coast roofs island trees | on across over
    Flood | flooded | river water dam rain | valley fields streets cellars | through into after
    Evacuation | evacuated | residents families guard villagers | homes coast hospital shelter | from before to
    Rescue | rescued | firefighters crew helicopter divers | survivors child climbers sailors | from in near
    Rebuilding | rebuilt | volunteers builders council owners | homes bridge school levee | after with within
    Invasion | invaded | troops army tanks rebels | province capital border neighbour | across into from
    Bombing | bombed | jets rebels militia drone | depot bridge convoy village | near over during
    Ceasefire | agreed | rebels government generals sides | truce ceasefire terms pause | for between after
    Negotiation | negotiated | envoy diplomats minister mediator | peace terms hostages treaty | with over at
    Withdrawal | retreated | troops battalion forces army | positions capital base front | from behind toward
    Merger | merged | airline bank rival conglomerate | subsidiary stake rival brand | with into for
    Earnings | earned | retailer bank company carmaker | profit revenue dividend quarter | in on during
    Layoff | dismissed | factory company carmaker mill | workers staff engineers managers | at amid without
    Bankruptcy | defaulted | retailer airline lender developer | creditors debts assets loans | on under to
    Lawsuit | sued | shareholders regulators plaintiff tenant | company damages patent rival | for against over
    Outbreak | infected | virus flu bacteria disease | patients travellers poultry village | in among across
    Diagnosis | diagnosed | doctor clinic specialist nurse | patient tumour infection child | with at after
    Vaccination | vaccinated | nurses clinic ministry volunteers | children pupils elders doses | against at for
    Surgery | operated | surgeon hospital team doctor | heart knee patient tumour | on during without
    Recovery | recovered | patient survivor athlete actor | strength speech health balance | from after within
    Match | defeated | team striker champion visitors | rivals hosts opponent goal | in at with
    Injury | injured | defender striker sprinter player | knee ankle shoulder season | during before in
    Transfer | transferred | club agent striker league | contract fee goalkeeper player | to from for
    Championship | triumphed | champion team sprinter nation | title trophy medal final | at over through
    Retirement | retired | captain champion coach veteran | career jersey team crown | after from at
    Strike | picketed | drivers miners teachers union | mine depot plant work | at over for
    Protest | protested | students marchers crowds farmers | reform cuts corruption square | against in through
    Bargaining | bargained | union employers stewards mediator | wages pensions contract hours | with about over
    Settlement | compromised | union company ministry lawyers | dispute claim backpay contract | on between with
    Wage_Rise | awarded | council employer board ministry | nurses raise bonus teachers | to by from
    Launch | orbited | rocket agency satellite crew | orbit capsule telescope probe | from into beyond
    Discovery | discovered | astronomers researchers divers team | planet fossil wreck gene | near under in
    Experiment | measured | physicists laboratory researchers chemist | particles reaction mice samples | at in with
    Publication | published | journal authors institute scientist | findings study data theory | in about on
    Award | honoured | academy jury foundation king | laureate chemist prize poet | for with at
    Collision | crashed | train truck bus ferry | barrier pier passengers car | into near on
    Inspection | inspected | inspectors engineers agency regulators | brakes engine bridge kitchen | for after within
    Recall | recalled | carmaker manufacturer agency supplier | airbags vehicles toys batteries | over from across
    Investigation | investigated | investigators panel auditors detectives | cause crash fraud ledger | into of after
    Resignation | resigned | minister director chairman chief | post office seat cabinet | from amid over
"""

MOST_FRAMES = len(NEWSROOM.strip().splitlines()) * (1 + len(QUALIFIERS.split()))
MOST_WORDS = 500_000
