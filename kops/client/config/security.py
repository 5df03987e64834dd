"""The settings of TLS and SASL that all clients share. kops knows them, and rejects them until it supports TLS and SASL.

Source (names, types, defaults, limits, order): Kafka's SslConfigs and SaslConfigs.
"""

from __future__ import annotations

from typing import Final

from kops.config.values.definition import ConfigKey, any_list, between, one_of_ignoring_case

SECURITY: Final = (
    ConfigKey("ssl.protocol", "string", "TLSv1.3", None, "medium"),
    ConfigKey("ssl.provider", "string", None, None, "medium"),
    ConfigKey("ssl.cipher.suites", "list", [], any_list(empty=True, null=False), "low"),
    ConfigKey("ssl.enabled.protocols", "list", ["TLSv1.2", "TLSv1.3"], any_list(empty=True, null=False), "medium"),
    ConfigKey("ssl.keystore.type", "string", "JKS", None, "medium"),
    ConfigKey("ssl.keystore.location", "string", None, None, "high"),
    ConfigKey("ssl.keystore.password", "password", None, None, "high"),
    ConfigKey("ssl.key.password", "password", None, None, "high"),
    ConfigKey("ssl.keystore.key", "password", None, None, "high"),
    ConfigKey("ssl.keystore.certificate.chain", "password", None, None, "high"),
    ConfigKey("ssl.truststore.certificates", "password", None, None, "high"),
    ConfigKey("ssl.truststore.type", "string", "JKS", None, "medium"),
    ConfigKey("ssl.truststore.location", "string", None, None, "high"),
    ConfigKey("ssl.truststore.password", "password", None, None, "high"),
    ConfigKey("ssl.keymanager.algorithm", "string", "SunX509", None, "low"),
    ConfigKey("ssl.trustmanager.algorithm", "string", "PKIX", None, "low"),
    ConfigKey("ssl.endpoint.identification.algorithm", "string", "https", None, "low"),
    ConfigKey("ssl.secure.random.implementation", "string", None, None, "low"),
    ConfigKey("ssl.engine.factory.class", "class", None, None, "low"),
    ConfigKey("sasl.kerberos.service.name", "string", None, None, "medium"),
    ConfigKey("sasl.kerberos.kinit.cmd", "string", "/usr/bin/kinit", None, "low"),
    ConfigKey("sasl.kerberos.ticket.renew.window.factor", "double", 0.8, None, "low"),
    ConfigKey("sasl.kerberos.ticket.renew.jitter", "double", 0.05, None, "low"),
    ConfigKey("sasl.kerberos.min.time.before.relogin", "long", 60_000, None, "low"),
    ConfigKey("sasl.login.refresh.window.factor", "double", 0.8, between(0.5, 1.0), "low"),
    ConfigKey("sasl.login.refresh.window.jitter", "double", 0.05, between(0.0, 0.25), "low"),
    ConfigKey("sasl.login.refresh.min.period.seconds", "short", 60, between(0, 900), "low"),
    ConfigKey("sasl.login.refresh.buffer.seconds", "short", 300, between(0, 3600), "low"),
    ConfigKey("sasl.mechanism", "string", "GSSAPI", None, "medium"),
    ConfigKey("sasl.jaas.config", "password", None, None, "medium"),
    ConfigKey("sasl.client.callback.handler.class", "class", None, None, "medium"),
    ConfigKey("sasl.login.callback.handler.class", "class", None, None, "medium"),
    ConfigKey("sasl.login.class", "class", None, None, "medium"),
    ConfigKey("sasl.login.connect.timeout.ms", "int", None, None, "low"),
    ConfigKey("sasl.login.read.timeout.ms", "int", None, None, "low"),
    ConfigKey("sasl.login.retry.backoff.max.ms", "long", 10_000, None, "low"),
    ConfigKey("sasl.login.retry.backoff.ms", "long", 100, None, "low"),
    ConfigKey(
        "sasl.oauthbearer.jwt.retriever.class", "class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", None, "medium"
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class", "class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", None, "medium"
    ),
    ConfigKey("sasl.oauthbearer.scope", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.client.credentials.client.id", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.client.credentials.client.secret", "password", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.algorithm", "string", "RS256", one_of_ignoring_case("ES256", "RS256"), "medium"),
    ConfigKey("sasl.oauthbearer.assertion.claim.aud", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.claim.exp.seconds", "int", 300, between(0, 86400), "low"),
    ConfigKey("sasl.oauthbearer.assertion.claim.iss", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.claim.jti.include", "boolean", False, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.claim.nbf.seconds", "int", 60, between(0, 3600), "low"),
    ConfigKey("sasl.oauthbearer.assertion.claim.sub", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.file", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.private.key.file", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.private.key.passphrase", "password", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.assertion.template.file", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.scope.claim.name", "string", "scope", None, "low"),
    ConfigKey("sasl.oauthbearer.sub.claim.name", "string", "sub", None, "low"),
    ConfigKey("sasl.oauthbearer.token.endpoint.url", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.url", "string", None, None, "medium"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", 3_600_000, None, "low"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "long", 10_000, None, "low"),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", 100, None, "low"),
    ConfigKey("sasl.oauthbearer.clock.skew.seconds", "int", 30, None, "low"),
    ConfigKey("sasl.oauthbearer.expected.audience", "list", [], any_list(empty=True, null=False), "low"),
    ConfigKey("sasl.oauthbearer.expected.issuer", "string", None, None, "low"),
    ConfigKey("sasl.oauthbearer.header.urlencode", "boolean", False, None, "low"),
)
