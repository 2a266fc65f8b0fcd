"""Names the miniature apps are filled with, split once into a train and an eval side.

The sides share no word, so an eval task never asks about anything a train task named.
Closed vocabularies (labels, folders, sections, cards) belong to the apps and are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

EVAL_EVERY = 4
"""Every fourth word of each list belongs to the eval side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The open vocabularies of one side; every field is a tuple of distinct words."""

    people: tuple[str, ...]
    cities: tuple[str, ...]
    hotels: tuple[str, ...]
    projects: tuple[str, ...]
    suffixes: tuple[str, ...]
    components: tuple[str, ...]
    symptoms: tuple[str, ...]
    verdicts: tuple[str, ...]
    reasons: tuple[str, ...]
    domains: tuple[str, ...]
    topics: tuple[str, ...]
    papers: tuple[str, ...]
    communities: tuple[str, ...]
    colours: tuple[str, ...]
    crafts: tuple[str, ...]
    moods: tuple[str, ...]
    animals: tuple[str, ...]
    efforts: tuple[str, ...]
    modules: tuple[str, ...]
    firms: tuple[str, ...]
    wares: tuple[str, ...]
    terms: tuple[str, ...]
    mailboxes: tuple[str, ...]
    streets: tuple[str, ...]
    lenders: tuple[str, ...]


_WORDS: Mapping[str, str] = {
    "people": """Mira Omar Lena Hugo Nora Ivan Tara Felix Anya Bruno Clara Dario Edith Farid Greta
        Hana Ines Jonas Kira Lars Maya Nils Olga Pavel Rosa Samir Tilda Ugo Vera Wanda Yusuf Zora
        Aldo Berta Cyril Doris Emil Fiona Gleb Heidi Igor Jana Karim Lucia Milan Nadia Otto Petra
        Quinn Ramon Selma Timur Ursula Viktor Wim Xenia Yara Zeno Amara Boris Celia Dmitri Elif
        Frida Goran Helga Idris Julia Kofi Lidia Marek Noor Oskar Paula Rafal Sonja Tomas Uma
        Vasil Wilma Yann Zelda Agnes Bilal Chiara Dunja Enzo Flora Gita Harun Ida Joran Katya
        Leif Magda Nestor""",
    "cities": """Brno Lyon Oslo Porto Riga Turin Ghent Malmo Basel Split Varna Cork Delft Essen
        Faro Graz Hanoi Izmir Jaipur Kyoto Leeds Miami Nantes Osaka Perth Quito Rouen Siena Tampa
        Utrecht Vigo Wroclaw Xiamen York Zagreb Aarhus Bergen Cairo Dakar Exeter Fukuoka Genoa
        Haifa Innsbruck Jena Kazan Lima Minsk Naples Odense Prague Quebec Rabat Seville Tunis Umea
        Vienna Warsaw Yerevan Zurich Accra Bonn Cusco Dover Espoo Florence Gdansk Hobart Ibiza
        Juneau Krakow Lugano Mumbai Nice Orlando Pisa Reno Salta Tartu Ulm""",
    "hotels": """Aster Birch Cedar Daisy Elm Fern Ginger Hazel Iris Jasmine Kelp Laurel Maple Nettle
        Olive Poppy Quince Rowan Sage Thyme Umber Violet Willow Yarrow Zinnia Acacia Bamboo Clover
        Dahlia Ebony Fuchsia Garnet Heron Ivory Jade Kestrel Lotus Magnolia Narcissus Orchid
        Plover Quartz Raven Sparrow Tulip Linden Verbena Walnut Larch Juniper Almond Begonia
        Cypress Dogwood Elder Falcon Grouse Hemlock Indigo Jackdaw Kingfisher Lavender Myrtle
        Nutmeg Osprey Peony Robin Saffron Teal Wisteria Pelican Swift""",
    "projects": """ember tide comet lumen pixel raven cobalt delta falcon glacier harbor ivory
        jigsaw kernel lantern meadow nimbus orbit prism quill ripple summit timber
        vertex willow zephyr anchor beacon cipher dynamo echo fable gravel hollow island
        jasper karma ledger magnet nectar onyx pebble quiver rocket saddle turbo umbra
        velvet""",
    "suffixes": "api cli web docs core kit lab app hub sync bot io ui sdk ops db",
    "components": """login export search upload invoice profile billing avatar cache router parser
        session cookie menu button header footer slider widget webhook token backup import filter
        editor preview gallery badge calendar dialog tooltip sidebar banner index queue worker
        mailer logger sensor layout""",
    "symptoms": """crash timeout typo leak freeze loop delay overflow blank error flicker mismatch
        warning glitch lag hang drift panic stall gap""",
    "verdicts": """fixed tested confirmed merged checked reviewed approved solved retried repeated
        noted planned moved delayed updated closed patched shipped dropped paused""",
    "reasons": """nightly locally upstream twice overnight again already yesterday quickly remotely
        partly mostly finally nearby anyway together early safely cleanly later""",
    "domains": """kode.io lumo.net post.org brix.com fern.dev nord.eu vala.io pico.net orbi.com
        tern.org sola.dev mint.eu gala.io ruby.net volt.com dune.org hexa.dev plum.eu cove.io
        atlas.net""",
    "topics": """rent budget travel lunch audit payroll garden concert insurance holiday parking
        training survey roadmap contract printer laptop picnic workshop newsletter recipe soccer
        library dentist mortgage wedding museum harvest ferry festival""",
    "papers": """plan notes draft report list offer summary photos update invite figures agenda
        receipt ticket forecast review schedule quote memo slides""",
    "communities": """ceramics kayaks houseplants chess baking telescopes knitting synths trains
        origami bonsai cycling espresso falconry gardening hiking islands jazz kites lego
        mushrooms novels opera puzzles quilts robots sailing typewriters ukuleles vinyl woodwork
        yoga aquariums beekeeping climbing drones embroidery fossils guitars haiku archery
        judo kimchi lanterns maps nebulas owls pianos""",
    "colours": """blue amber copper crimson golden green grey ivory lilac mint navy ochre olive
        pink plum purple red rusty scarlet silver tan teal violet white""",
    "crafts": """kiln rope shelf lamp basket ladder kettle mirror saddle wagon bench canoe drawer
        fence goblet hammer jar kimono loom mask needle oven paddle quilt""",
    "moods": """Velvet Broken Silent Electric Lonely Hollow Burning Frozen Gentle Hidden Iron
        Jolly Lucky Midnight Northern Paper Quiet Restless Savage Tender Wandering Wicked Young
        Distant""",
    "animals": """Owls Foxes Tigers Wolves Herons Badgers Crows Dragons Eagles Ferrets Geckos
        Hornets Jaguars Koalas Lemurs Moths Newts Otters Pandas Ravens Sharks Turtles Vipers
        Whales""",
    "efforts": """migrate refactor document automate localise encrypt compress throttle paginate
        benchmark deprecate harden instrument modernise normalise prototype rename sandbox
        serialise simplify stabilise streamline unify upgrade validate wrap decouple inline""",
    "modules": """payouts ledgers accounts catalogues refunds tariffs vouchers permissions manifests
        snapshots schemas tenants timers toggles wallets translations fixtures fonts heartbeats
        keyrings locales mutexes payloads quotas replicas shards thumbnails addresses cursors
        digests""",
    "firms": """Brightpath Halcyon Nordwind Quantic Redstone Silverline Trellis Vantage Westbrook
        Zenith Argonaut Bluefin Castellan Driftwood Everfield Foxglove Greywater Hearthside
        Ironbark Kingsley Longreach Mirabel Northgate Oakhurst Pinecrest Ravenna Stonebridge
        Tidewell Umbria Wellspring Yellowtail Ashdown""",
    "wares": """scanner turbine forklift elevator freezer generator inverter joystick kiosk lathe
        nozzle pallet sprinkler thermostat ventilator welder conveyor drill excavator crane
        battery camera antenna boiler carton dryer engine funnel gasket hoist""",
    "terms": """lease retrofit rollout pilot bundle extension replacement licence maintenance refit
        expansion consignment subscription trial escrow warranty installation fitting order buyout
        pooling hire rental stocking""",
    "mailboxes": """letterbee postino quickwire mailmoth inkpigeon stamply notedove parcela envelo
        writeo mailoak postfinch inboxer wireleaf penpost scribbo airpost mailbay lettero
        postnest""",
    "streets": """Ashgrove Bellmont Coppergate Dunmore Eastcliff Fairholm Glenwood Highfield
        Inglewood Jarrow Kirkstall Larkhill Millbrook Newbury Oakfield Parkside Queensway Ridgeway
        Sandgate Thornbury Underhill Whitehall Yewtree Ashford Beechmont Clifton Dovecote Elmhurst
        Foxhill Greenbank Hillcrest Ivydale""",
    "lenders": """Keystone Meridian Fidelis Lombard Provident Concord Sterling Harborview Alderbank
        Cornerstone Trident Bulwark Evergreen Paragon Heritage Granite Crescent Landmark Compass
        Pinnacle Citadel Anchorage Solvera Truscott""",
}


def _split_pools() -> Mapping[str, Pools]:
    side_of: dict[str, str] = {}
    sides: dict[str, dict[str, tuple[str, ...]]] = {"train": {}, "eval": {}}
    for field in fields(Pools):
        words = _WORDS[field.name].split()
        for position, word in enumerate(words):
            # A word used in two lists stays on the side of its first occurrence.
            side = "eval" if position % EVAL_EVERY == EVAL_EVERY - 1 else "train"
            side_of.setdefault(word.casefold(), side)
        for side, pools in sides.items():
            pools[field.name] = tuple(w for w in words if side_of[w.casefold()] == side)
    return MappingProxyType({side: Pools(**pools) for side, pools in sides.items()})


POOLS: Mapping[str, Pools] = _split_pools()
"""`train` and `eval`: no word is on both sides, in whatever list."""
