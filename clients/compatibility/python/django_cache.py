"""What Django's cache can do in the default keyspace."""

import os
import time

import django
from django.conf import settings

LOCATION = f"redis://{os.environ['HOST']}:{os.environ['PORT']}"
BACKEND = "django.core.cache.backends.redis.RedisCache"
settings.configure(CACHES={"default": {"BACKEND": BACKEND, "LOCATION": LOCATION}})

import redis  # noqa: E402
from django.core.cache import cache  # noqa: E402


def set_and_get():
    cache.set("a", {"any": "object"}, timeout=1)
    assert cache.get("a") == {"any": "object"}
    time.sleep(1.2)
    assert cache.get("a") is None


def get_many():
    cache.set("b", 1)
    cache.set("c", 2)
    assert cache.get_many(["b", "c", "d"]) == {"b": 1, "c": 2}


def delete():
    cache.set("e", 1)
    assert cache.delete("e") and not cache.has_key("e")


def clear():
    cache.set("f", 1)
    assert cache.clear() and cache.get("f") is None


def add():
    assert cache.add("g", 1) and not cache.add("g", 2)


def touch():
    cache.set("h", 1, timeout=1)
    cache.set("l", 2, timeout=1)
    assert cache.touch("h", 100) and cache.touch("l", None)
    assert cache.touch("nothing") is False
    time.sleep(1.2)
    assert cache.get("h") == 1 and cache.get("l") == 2


def incr():
    cache.set("i", 1)
    assert cache.incr("i") == 2


def set_many():
    # The keys of a transaction must be in one partition, and these are.
    assert cache.set_many({"{j}1": 1, "{j}2": 2}) == []


for check in [set_and_get, get_many, delete, clear, add, touch, incr, set_many]:
    try:
        check()
        answer = "ok"
    except redis.RedisError as error:
        answer = str(error)
    except AssertionError as error:
        answer = f"WRONG {error}"
    print(check.__name__, answer.replace("\n", " "), sep="\t", flush=True)
print("version", django.__version__, sep="\t")
