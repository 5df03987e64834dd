"""Ends a transaction of `kops topic produce`: commits or aborts it, and explains a failure.

Source: Kafka's KafkaProducer (commitTransaction, abortTransaction), TransactionManager (EndTxnHandler: which errors mean that the
transaction is no longer this producer's).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kops.errors import ApiError, KopsError, UnreachableError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from kops.cli.commands.topic.sending import Job
    from kops.client.producer.faces.commands import Transaction

# The coordinator ended the transaction for another producer, or because it took too long.
_TAKEN: Final = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "UNKNOWN_PRODUCER_ID")
Say = Callable[[str], object]


def end_transaction(job: Job, transaction: Transaction, stopped: BaseException | None, say: Say) -> BaseException | None:
    """Commit if all input was read and written, else abort. Returns the exception that ended the run, if it is not the records' outcome."""
    if stopped is None:
        try:
            job.producer.flush()
        except (KeyboardInterrupt, KopsError) as error:
            stopped = error
    if stopped is None and job.producer.failure is None:
        return _commit(job, transaction, say)
    return _abort(job, transaction, stopped, job.producer.failure, say)


def _commit(job: Job, transaction: Transaction, say: Say) -> BaseException | None:
    was_interrupted = False
    while True:
        try:
            transaction.end(commit=True)
        except KeyboardInterrupt as error:
            if was_interrupted:
                job.lose(_unknown(KopsError("interrupted"), transaction))
                return error
            was_interrupted = True
            say("waiting for the answer to the commit, which may already be done; press Ctrl-C again to stop at once")
            continue
        except UnreachableError as error:
            job.lose(_unknown(error, transaction))
        except ApiError as error:
            if error.name not in _TAKEN and not by_name(error.name).retriable:
                return _abort(job, transaction, None, error, say)
            job.lose(_explained(error, transaction) if error.name in _TAKEN else _unknown(error, transaction))
        else:
            if job.sent:
                say(f"the transaction of {transaction.transactional_id} is committed")
        return None


def _abort(job: Job, transaction: Transaction, stopped: BaseException | None, failure: KopsError | None, say: Say) -> BaseException | None:
    told = failure or (stopped if isinstance(stopped, ApiError | UnreachableError) else KopsError("the transaction was aborted"))
    name = transaction.transactional_id
    try:
        job.producer.drop(told)
        was_open = transaction.is_open
        transaction.end(commit=False)
        if was_open:
            say(f"the transaction of {name} is aborted: readers with isolation level read_committed get none of its records")
    except (ApiError, UnreachableError, KeyboardInterrupt) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        if not isinstance(error, ApiError) or error.name not in _TAKEN:
            left = f"its coordinator aborts it {transaction.timeout_ms} ms after its first record"
            say(f"the transaction of {name} may still be open ({why}): {left}, and kops txn abort --transactional-id {name} at once")
    job.lose(_explained(told, transaction))
    return None if told is stopped else stopped


def _explained(error: KopsError, transaction: Transaction) -> KopsError:
    if not isinstance(error, ApiError) or error.name not in _TAKEN:
        return error
    limit = f"or the transaction took longer than transaction.timeout.ms={transaction.timeout_ms}"
    return ApiError(error.name, f"{error}: another producer has started with {transaction.transactional_id}, {limit}")


def _unknown(error: KopsError, transaction: Transaction) -> KopsError:
    name = transaction.transactional_id
    words = f"{error}: whether they are committed is not known; kops txn describe {name} shows the outcome"
    return UnreachableError(words) if isinstance(error, ApiError | UnreachableError) else KopsError(words)
