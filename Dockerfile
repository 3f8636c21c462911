# mapd and its licence, nothing else: the binary is static, needs no files and
# writes none. `make image` builds it first, for the same ARCH.
FROM scratch
ARG ARCH=amd64
ARG VERSION=devel
LABEL org.opencontainers.image.title="mapd" \
      org.opencontainers.image.description="MutatingAdmissionPolicies for clusters whose API server does not run them" \
      org.opencontainers.image.source="https://github.com/mapd-project/mapd" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY LICENSE /LICENSE
COPY bin/linux-${ARCH}/mapd /mapd
# Nobody in particular; a number, because there is no /etc/passwd and Kubernetes
# must see that it is not root.
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/mapd"]
