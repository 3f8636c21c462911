{{- define "mapd.namespace" -}}
{{- .Values.namespace.name | default .Release.Namespace -}}
{{- end -}}

{{- define "mapd.labels" -}}
app.kubernetes.io/name: mapd
app.kubernetes.io/part-of: mapd
{{- end -}}

{{- define "mapd.image" -}}
{{- $image := printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ $image = printf "%s@%s" $image . }}{{ end -}}
{{- $image -}}
{{- end -}}

{{/* legacy is on, shadow, native or off; empty if off. */}}
{{- define "mapd.legacy" -}}
{{- $mode := toString .Values.legacy -}}
{{- if has $mode (list "on" "shadow" "native") -}}
{{- $mode -}}
{{- else if ne $mode "off" -}}
{{- fail (printf "legacy: %q: must be \"on\", \"shadow\", \"native\" or \"off\", in quotes" $mode) -}}
{{- end -}}
{{- end -}}

{{/* kubewarden is the mode of Kubewarden's policies, empty if they do not run. */}}
{{- define "mapd.kubewarden" -}}
{{- $mode := toString .Values.kubewarden -}}
{{- if has $mode (list "on" "shadow") -}}
{{- $mode -}}
{{- else if ne $mode "off" -}}
{{- fail (printf "kubewarden: %q: must be \"on\", \"shadow\" or \"off\", in quotes" $mode) -}}
{{- end -}}
{{- end -}}

{{/* reports is the API of the reports that are written, empty if none are. */}}
{{- define "mapd.reports" -}}
{{- $api := toString .Values.reports -}}
{{- if has $api (list "openreports" "policyreport") -}}
{{- if not .Values.auditInterval }}{{ fail "reports: are written after audits, so auditInterval must be set" }}{{ end -}}
{{- $api -}}
{{- else if $api -}}
{{- fail (printf "reports: %q: must be \"openreports\", \"policyreport\" or empty" $api) -}}
{{- end -}}
{{- end -}}

{{/* subjects is the one who everything is granted to. */}}
{{- define "mapd.subjects" -}}
subjects:
- {kind: ServiceAccount, name: mapd, namespace: {{ include "mapd.namespace" . }}}
{{- end -}}
