"""The store of a data directory: its owner lock, catalog and logs, with one id generator and one writer for all
logs."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock.core.clock import Clock, SteadyClock, idle_clock_warning, now_ms
from penstock.core.errors import (
    DiskFull,
    InvalidRequest,
    NotOwner,
    PenstockError,
    ServiceUnavailable,
    StorageFailed,
)
from penstock.core.ids import unix_ms_of_ticks
from penstock.core.limits import Limits
from penstock.core.names import DEAD_LETTER_SUFFIX, TopicName
from penstock.record.block import Draft
from penstock.storage.base.clock_record import ClockReading, last_wall_ns, save_reading, saved_reading, this_boot
from penstock.storage.base.disk import Disk, OwnerLock, replace_file, storage_error
from penstock.storage.base.layout import (
    CATALOG,
    FORMAT,
    IDENTITY,
    LOCK,
    RESERVE,
    TOPICS,
    TRASH,
    StoreIdentity,
    check_root,
    is_data_directory,
    log_path,
    read_identity,
)
from penstock.storage.base.metrics import MeteredDisk, StorageMeter
from penstock.storage.base.reserve import DiskReserve
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.topics import Dispatch, Retention, Topic, TopicSettings, merged_settings
from penstock.storage.log.append_result import AppendResult, Durability
from penstock.storage.log.group_commit import HELPERS, GroupCommit, PendingAppend, SharedIds, release_all
from penstock.storage.log.log import Log
from penstock.storage.log_ends import LogEnds
from penstock.storage.maintenance import MaintenanceThread
from penstock.storage.producer_windows import derive_checkpoint

_LOG = logging.getLogger(__name__)


class Store:
    """An open data directory, owned by one process at a time. Appends go through its writer; reads go to the logs
    directly."""

    def __init__(self, root: Path, *, clock: Clock, limits: Limits, durability: Durability) -> None:
        self.root = root
        self.meter = StorageMeter()
        self._disk: Disk = MeteredDisk(self.meter)
        self._clock = clock
        self._limits = limits
        self._durability = durability
        self._logs: dict[tuple[TopicName, int], Log] = {}
        self._topics: dict[TopicName, Topic] = {}
        # Topics are created, altered and deleted one at a time, so the catalog and the logs agree on the last change.
        self._changing = threading.Lock()
        self._closing: list[Any] = []
        self._maintenance = MaintenanceThread(self._look_after)
        self._request_round = self._maintenance.request_round
        """One bound method that all logs share, to save memory."""

        self._boot = this_boot()
        self._disowned = False

    @classmethod
    def open(
        cls,
        root: Path | str,
        *,
        create: bool = False,
        clock: Clock | None = None,
        limits: Limits | None = None,
        durability: Durability = Durability.SYNC,
        deliver: Callable[[Sequence[PendingAppend]], None] = release_all,
    ) -> Self:
        """Take ownership of a data directory and recover every log in it.

        `deliver` gets the blocks of each group commit with their outcomes, in the writer's thread; see `GroupCommit`.
        Raises `NotOwner` if another process owns it, `InvalidRequest` if it does not exist and `create` is off,
        `VersionNotSupported` if a newer Penstock made it, `StorageFailed` if its catalog is damaged.
        """
        store = cls(
            Path(root).absolute(),
            clock=clock or SteadyClock(),
            limits=(limits or Limits()).check(),
            durability=durability,
        )
        try:
            store._open(create, deliver)
        except OSError as error:
            store.close()
            raise storage_error(error, f"{store.root} cannot be opened") from error
        except BaseException:
            store.close()
            raise
        return store

    def _open(self, create: bool, deliver: Callable[[Sequence[PendingAppend]], None]) -> None:
        check_root(self.root, create=create)
        if create:
            self._disk.make_directory(self.root)
        self._lock = OwnerLock(self.root / LOCK)
        self._closing.append(self._lock.release)
        identity = self._identity()
        self._resume_clock()
        if self._durability is Durability.OS:
            _LOG.warning("%s: durability is 'os': a power cut loses messages that were acknowledged", self.root)
        # Segments without a catalog mean that it was lost. An empty one in its place would hide them.
        fresh = not self._disk.names(self.root / TOPICS)
        reserve = DiskReserve(self._disk, self.root / RESERVE, self._limits)
        reserve.adjust()
        self.catalog = Catalog.open(self.root / CATALOG, clock=self._clock, create=fresh, reserve=reserve)
        self._closing.append(self.catalog.close)
        self._ids = SharedIds(self._clock, node=identity.node)
        self._empty_trash()
        self._log_ends = LogEnds(self.catalog)
        for topic in self.catalog.list_topics():
            self._open_logs(topic)
        self._check_clock()
        self.writer = GroupCommit(self._limits, deliver=deliver, helpers=HELPERS, meter=self.meter)
        self._maintenance.start()
        self._closing.append(self._maintenance.close)
        self._closing.append(self._close_logs)
        self._closing.append(self.writer.close)

    def _identity(self) -> StoreIdentity:
        if not is_data_directory(self._disk, self.root):
            self.root.chmod(0o700)
            identity = StoreIdentity(format=FORMAT, node=secrets.randbits(62))
            replace_file(self._disk, self.root / IDENTITY, msgspec.json.encode(identity))
            return identity
        return read_identity(self._disk, self.root)

    # topics

    def create_topic(
        self,
        name: TopicName,
        *,
        partitions: int = 1,
        dispatch: Dispatch = Dispatch.RELIABLE,
        settings: TopicSettings | None = None,
    ) -> Topic:
        """Create a topic and its logs, durable on return; a live topic has no logs.

        Fields that `settings` leave unset come from the namespace. Raises `InvalidRequest` if the topic exists, if its
        settings contradict each other, or for a live topic in a dead letter namespace.
        """
        if dispatch is Dispatch.LIVE and name.namespace.endswith(DEAD_LETTER_SUFFIX):
            raise InvalidRequest(
                f"{name} is where dead letters go, and a live topic keeps none: make it a reliable one", topic=str(name)
            )
        with self._changing:
            defaults = self.catalog.namespace_settings(name.namespace)
            settings = merged_settings(settings or TopicSettings(), defaults, dispatch)
            _limits_of(settings, self._limits)
            topic = self.catalog.create_topic(name, partitions=partitions, dispatch=dispatch, settings=settings)
            try:
                self._open_logs(topic)
            except PenstockError:
                self.catalog.delete_topic(name)  # a topic without its logs could be neither used nor created again
                raise
        return topic

    def alter_topic(self, name: TopicName, settings: TopicSettings) -> Topic:
        """Replace all settings of a topic; on return they are durable and apply to the next append.

        Raises `TopicNotSupported` if the topic does not exist, `InvalidRequest` if the settings contradict each other.
        """
        limits = _limits_of(settings, self._limits)
        with self._changing:
            topic = self.catalog.alter_topic(name, settings)
            self.writer.run(lambda: self._take_over(topic, limits))
        return topic

    def _take_over(self, topic: Topic, limits: Limits) -> None:
        self._topics[topic.name] = topic
        for partition in _partitions(topic):
            self.log(topic.name, partition).set_limits(limits)

    def delete_topic(self, name: TopicName) -> None:
        """Delete a topic with its messages. An interrupted deletion is finished when the directory is next opened."""
        with self._changing:
            topic = self.catalog.get_topic(name)
            trash = self.root / TRASH / str(topic.topic_uid)
            self.writer.run(lambda: self._discard(topic, trash))
            self.catalog.delete_topic(name)
            self._disk.remove_tree(trash)

    def _discard(self, topic: Topic, trash: Path) -> None:
        self._disk.make_directory(trash)
        self._topics.pop(topic.name, None)
        for partition in _partitions(topic):
            self._log_ends.remove((topic.topic_uid, partition))
            log = self._logs.pop((topic.name, partition), None)
            if log is None:
                continue  # an earlier attempt has discarded this log
            log.close()
            self._disk.rename(log.path, trash / str(partition))
            self._disk.sync_directory(log.path.parent)
        self._disk.sync_directory(trash)

    def _empty_trash(self) -> None:
        """Finish the deletions that a crash interrupted."""
        known = {str(topic.topic_uid): topic for topic in self.catalog.list_topics()}
        for uid in self._disk.names(self.root / TRASH):
            if uid in known:
                self.catalog.delete_topic(known[uid].name)
                for partition in range(known[uid].partitions):
                    path = log_path(self.root, known[uid].name, partition, known[uid].partitions)
                    if self._disk.exists(path):
                        self._disk.remove_tree(path)
            self._disk.remove_tree(self.root / TRASH / uid)

    def _open_logs(self, topic: Topic) -> None:
        for partition in _partitions(topic):
            path = log_path(self.root, topic.name, partition, topic.partitions)
            log = Log.open(
                self._disk,
                path,
                ids=self._ids,
                clock=self._clock,
                limits=_limits_of(topic.settings, self._limits),
                durability=self._durability,
                recorded_end=self._log_ends.recorded((topic.topic_uid, partition)),
            )
            log.on_change = self._request_round
            self._log_ends.add((topic.topic_uid, partition), log)
            self._logs[topic.name, partition] = log
        self._topics[topic.name] = topic

    # messages

    def log(self, name: TopicName, partition: int = 0) -> Log:
        """Return the log of a partition. Raises `TopicNotSupported` for an unknown topic, `InvalidRequest` for a
        partition that has no log."""
        found = self._logs.get((name, partition))
        if found is None:
            topic = self.catalog.get_topic(name)
            if topic.dispatch is Dispatch.LIVE:
                raise InvalidRequest(f"{name} is live: it keeps no messages", topic=str(name))
            raise InvalidRequest(f"{name} has partitions 0 to {topic.partitions - 1}, not {partition}")
        return found

    def append(self, name: TopicName, draft: Draft, *, partition: int = 0) -> AppendResult:
        """Append a block, durable on return."""
        return self.writer.append(self.log(name, partition), draft)

    def retain(self) -> int:
        """Apply every topic's retention and return how many segments were dropped. An error of one log is logged, and
        the others go on."""
        if not self.writer.is_alive:
            raise ServiceUnavailable("the data directory is closing")
        return sum(self._retain(name, partition) for name, partition in list(self._logs))

    def _retain(self, name: TopicName, partition: int) -> int:
        topic = self._topics.get(name)
        if topic is None or topic.settings.retention == Retention():
            return 0
        try:
            floor = self._floor(topic, partition)
            log = self.log(name, partition)
            stop = log.retained_from(topic.settings.retention, floor=floor)
            if stop is None:
                return 0
            self._remember_producers(topic, partition, log, stop)
            return int(self.writer.run(partial(self._retain_log, name, partition, stop)))
        except ServiceUnavailable:
            raise
        except PenstockError as error:
            _LOG.error("%s, partition %d: retention failed: %s", name, partition, error)
            return 0

    def _remember_producers(self, topic: Topic, partition: int, log: Log, stop: int) -> None:
        """Save the last requests of a partition's producers before records below `stop` are dropped, so that retries of
        them are recognised."""
        known = self.catalog.load_checkpoint(topic, partition)
        if known is not None and known.next_offset >= stop:
            return
        try:
            self.catalog.save_checkpoint(topic, partition, derive_checkpoint(log, known, stop=stop))
        except DiskFull as error:  # the segments about to go make the missing room
            _LOG.warning(
                "%s, partition %d: the last requests of its producers could not be saved: %s",
                topic.name,
                partition,
                error,
            )

    def _floor(self, topic: Topic, partition: int) -> int | None:
        """Return the lowest offset that a subscription in the topic's `keep_for` has not acknowledged.

        Returns None if `keep_for` is empty, and 0 while one of its subscriptions does not exist.
        """
        names = topic.settings.retention.keep_for
        if not names:
            return None
        known = {
            subscription.name: subscription.subscription_uid for subscription in self.catalog.list_subscriptions(topic)
        }
        floors = [0]
        if known.keys() >= set(names):
            cursors = (self.catalog.load_cursors(known[name]).get(partition) for name in names)
            floors = [0 if cursor is None else int(cursor.floor) for cursor in cursors]
        return min(floors)

    def _retain_log(self, name: TopicName, partition: int, floor: int) -> int:
        """Apply retention, in the writer's thread, to the topic and log as they are now; return how many segments were
        dropped."""
        topic, log = self._topics.get(name), self._logs.get((name, partition))
        return 0 if topic is None or log is None else log.retain(topic.settings.retention, floor=floor)

    def truncate_before(self, name: TopicName, offset: int, *, partition: int = 0) -> None:
        """Forget everything below `offset`; durable on return. Does nothing for a live topic, which keeps no
        messages."""
        topic = self.catalog.get_topic(name)
        if topic.dispatch is Dispatch.LIVE:
            return
        log = self.log(name, partition)
        self._remember_producers(topic, partition, log, min(offset, log.next_offset))
        self.writer.run(lambda: log.truncate_before(offset))

    # numbers for operators

    @property
    def logs(self) -> list[Log]:
        """The logs of all topics."""
        return list(self._logs.values())

    @property
    def reserve_bytes(self) -> int:
        """Bytes kept free on the disk: with less, appends that need a new segment are refused."""
        return self._limits.disk_reserve_bytes

    def free_bytes(self) -> int:
        """Return the bytes free on the disk of the logs."""
        return self._disk.free_bytes(self.root)

    # maintenance

    def _look_after(self) -> None:
        """Make one round of maintenance: check the lock, save the time and the ends of logs, sync the commit
        counter."""
        self._keep_lock()
        self._note_time()
        self._log_ends.save()
        self.catalog.sync_commit_counter()

    def _resume_clock(self) -> None:
        """Continue the clock from its last saved reading, so that a jump made while the broker was down is held back
        too."""
        moment = saved_reading(self._disk, self.root, boot=self._boot)
        if moment is not None and isinstance(self._clock, SteadyClock):
            self._clock.resume(*moment)

    def _check_clock(self) -> None:
        """Warn if message ids are ahead of the clock, or if the clock may be wrong after a long rest."""
        self._ids.check()
        if saved_reading(self._disk, self.root, boot=self._boot) is not None:
            return
        seen_ms = max(unix_ms_of_ticks(self._ids.last_ticks), last_wall_ns(self._disk, self.root) // 10**6)
        if warning := idle_clock_warning(seen_ms, now_ms(self._clock)):
            _LOG.warning("%s: %s", self.root, warning)

    def _note_time(self) -> None:
        if isinstance(self._clock, SteadyClock):
            save_reading(self._disk, self.root, ClockReading(*self._clock.reading()), boot=self._boot)

    def _keep_lock(self) -> None:
        """Check the owner lock, and refuse all appends if another process has taken it.

        Two owners would give the same offsets to different messages.
        """
        if self._disowned:
            return
        try:
            if self._lock.reclaim():
                _LOG.error("%s: the lock file was removed while its owner runs; it is back. Leave it alone", self.root)
        except NotOwner as error:
            self._disowned = True
            _LOG.error("%s; this process, which was first, takes no more messages", error)
            failure = StorageFailed(f"another process writes to {self.root}, too: stop both, then start one")
            with suppress(ServiceUnavailable):  # it is being closed
                self.writer.run(partial(self._refuse, failure))
        except OSError as error:
            _LOG.error("%s: its lock file cannot be checked: %s", self.root, error)

    def _refuse(self, failure: StorageFailed) -> None:
        for log in self.logs:
            log.refuse(failure)

    # closing

    def _close_logs(self) -> None:
        for log in self._logs.values():
            log.close()

    def close(self) -> None:
        """Finish queued appends, close the logs in order, release the directory. Idempotent."""
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _partitions(topic: Topic) -> range:
    """Return the partitions that have a log."""
    return range(0 if topic.dispatch is Dispatch.LIVE else topic.partitions)


@lru_cache(maxsize=256)
def _limits_of(settings: TopicSettings, limits: Limits) -> Limits:
    """Return the store's limits with the topic's own in their place. Equal settings give the same object.

    Raises `InvalidRequest` if they contradict each other.
    """
    segment = settings.segment_bytes_max or limits.segment_bytes_max
    block = min(limits.block_bytes_max, segment)
    return replace(
        limits,
        segment_bytes_max=segment,
        segment_bytes_first=min(limits.segment_bytes_first, segment),
        segment_age_ms_max=settings.segment_age_ms_max or limits.segment_age_ms_max,
        block_bytes_max=block,
        payload_bytes_max=settings.payload_bytes_max or min(limits.payload_bytes_max, block),
    ).check()
