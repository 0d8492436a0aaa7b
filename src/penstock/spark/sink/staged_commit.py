"""The commit of a staged write: when all tasks are done, the driver publishes the staged rows, each once.

The committing process owns the destination: it holds the lock of the data directory, or the producer's name at the
broker. If a commit is interrupted, the next one goes on with its plan, and leaves out the rows that are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from penstock.core.errors import InvalidRequest, NotOwner
from penstock.spark.runtime.failpoints import reach
from penstock.spark.sink.identity import WriteCounts, WriteIdentity
from penstock.spark.sink.loader import Loader
from penstock.spark.sink.numbers import NUMBER, check_rising
from penstock.spark.sink.options import RowNumbers, SinkOptions
from penstock.spark.sink.publisher import Publisher
from penstock.spark.sink.routing import ProducerRows, Router, check_order
from penstock.spark.sink.staging import PublishPlan, StagedFile, Staging, is_single_use
from penstock.storage.store import Store


def commit(
    options: SinkOptions,
    identity: WriteIdentity,
    files: Sequence[StagedFile],
    *,
    progress: Callable[[int], None] | None = None,
) -> WriteCounts:
    """Publish the staged files of a batch and return the counts of its rows. The rows are on disk on return.

    A batch that is published already is not published again. `progress` is called with the number of rows so far.
    Raises `NotOwner` if a broker owns the data directory, `InvalidRequest` if a later batch of the same stream is
    published, and the error that keeps a row from being stored. Into a data directory, all rows are checked before the
    first is stored; through a broker, rows before the wrong one may be stored.
    """
    staging = _staging(options, identity)
    if not any(file.rows for file in files) and not staging.is_begun(identity.batch):
        return WriteCounts()
    with open_destination(options) as destination:
        identity.check_order(staging.last_batch(), options.staging)
        if staging.last_batch() >= identity.batch:
            staging.sweep()
            rows = sum(file.rows for file in files)
            return WriteCounts(rows, stored_before=rows)
        plan = staging.plan(identity.batch, files)
        if isinstance(destination, Loader):
            _check_all_rows(options, identity, staging, plan, destination)
        staging.save_plan(plan)
        reach("sink-planned")
        for group in _groups(options, identity, staging, plan):
            check_order(options, identity, group, destination)
            destination.append(group)
            reach("sink-appending")
            if progress is not None:
                progress(destination.tally.rows)
        destination.finish()
        reach("sink-appended")
        _finish(identity, staging)
        return destination.tally


def discard(options: SinkOptions, identity: WriteIdentity, files: Sequence[StagedFile]) -> None:
    """Delete the staged files of a failed write."""
    _staging(options, identity).discard(identity.batch, files)


def _staging(options: SinkOptions, identity: WriteIdentity) -> Staging:
    if options.staging is None:
        raise InvalidRequest("nothing was staged: the tasks publish by themselves", option="staging")
    return Staging(options.staging, identity.query)


def _finish(identity: WriteIdentity, staging: Staging) -> None:
    if is_single_use(identity.query):
        staging.remove()
    else:
        staging.finish(identity.batch)


def _groups(
    options: SinkOptions, identity: WriteIdentity, staging: Staging, plan: PublishPlan
) -> Iterator[ProducerRows]:
    router = Router(options, identity, None)
    for batch in staging.rows(plan):
        yield from router.split(batch)


def _check_all_rows(
    options: SinkOptions, identity: WriteIdentity, staging: Staging, plan: PublishPlan, loader: Loader
) -> None:
    """Check all rows before the first is stored."""
    highest: dict[tuple[str, str], int] = {}
    for group in _groups(options, identity, staging, plan):
        check_order(options, identity, group, loader)
        loader.check(group.topic, group.rows)
        if options.numbers is RowNumbers.COLUMNS:
            key = group.topic, group.producer
            highest[key] = check_rising(group.rows.column(NUMBER).to_numpy(), highest.get(key, 0))


@contextmanager
def open_destination(options: SinkOptions) -> Iterator[Loader | Publisher]:
    """Open the destination: a broker, or the logs of a data directory, which stays locked until the context ends.

    Raises `NotOwner` if a broker or another process has the data directory.
    """
    if options.path is None:
        with Publisher(options) as publisher:
            yield publisher
        return
    with _store(options) as store:
        yield Loader(store, create_partitions=options.create_partitions)


def _store(options: SinkOptions) -> Store:
    """Open the data directory; where missing topics are to be created, the directory is created, too."""
    try:
        return Store.open(options.path or "", create=options.create_partitions is not None)
    except NotOwner as error:
        raise NotOwner(
            f"{error.message}. Where that is a broker, publish through it: broker=HOST:PORT in place of path",
            **error.details,
        ) from None
