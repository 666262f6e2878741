#!/bin/sh
# Makes the stores of this folder anew, with Java's keytool and OpenSSL: an authority, a broker's key and a client's.
# They are kept, since keytool takes a second for each. They are for tests on 127.0.0.1 and protect nothing.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
ec="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500"
openssl req -x509 $ec -keyout "$work/authority.key" -out authority.pem -subj /CN=authority \
    -addext keyUsage=critical,keyCertSign
for name in broker client; do
    openssl req -x509 $ec -CA authority.pem -CAkey "$work/authority.key" -keyout "$work/$name.key" -out "$work/$name.crt" \
        -subj "/CN=$name" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:false
    cat "$work/$name.key" "$work/$name.crt" authority.pem > "$name.pem"
done
openssl pkcs8 -topk8 -in "$work/client.key" -out client.key.encrypted.pem -passout pass:key-s3cret
openssl pkcs12 -export -in client.pem -name client -out "$work/client.p12" -passout pass:store-s3cret
into() {
    keytool -importkeystore -noprompt -srckeystore "$work/client.p12" -srcstorepass store-s3cret -destkeystore "$1" \
        -deststoretype "$2" -deststorepass store-s3cret -destkeypass "$3"
}
rm -f client.jks client.p12 trust.jks trust.p12
into client.jks JKS key-s3cret
into client.p12 PKCS12 store-s3cret
for kind in jks p12; do
    keytool -importcert -noprompt -alias authority -file authority.pem -keystore "trust.$kind" -storepass store-s3cret \
        -storetype "$([ $kind = jks ] && echo JKS || echo PKCS12)"
done
# Certificates that are too weak for OpenSSL, each with its key and its authority's certificate, which comes last.
for name in digest key authority; do
    digest=sha256 bits=2048 authority_bits=2048
    case $name in digest) digest=sha1 ;; key) bits=1024 ;; authority) authority_bits=1024 ;; esac
    openssl req -x509 -newkey rsa:$authority_bits -nodes -days 36500 -keyout "$work/ca.key" -out "$work/ca.crt" \
        -subj "/CN=weak $name's authority" -addext keyUsage=critical,keyCertSign
    openssl req -x509 -newkey rsa:$bits -nodes -days 36500 -CA "$work/ca.crt" -CAkey "$work/ca.key" -$digest \
        -keyout "$work/weak.key" -out "$work/weak.crt" -subj "/CN=weak $name" \
        -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:false
    cat "$work/weak.key" "$work/weak.crt" "$work/ca.crt" > "weak_$name.pem"
done
rm -r "$work"
