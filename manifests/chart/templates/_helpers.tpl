{{/* The recommended labels. */}}
{{- define "mooring.labels" -}}
app.kubernetes.io/name: mooring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/part-of: mooring
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/*
The objects of a file that the kustomize base has too, in the namespace of the release.
Takes a dict with `root` (the chart's scope), `file`, and optionally `labels` that are added.
*/}}
{{- define "mooring.objects" -}}
{{- $root := .root }}
{{- $more := .labels }}
{{- $runbook := printf "runbook_url: %s#" $root.Values.monitoring.runbookURL }}
{{- $monitoring := printf "kubernetes.io/metadata.name: %s" $root.Values.networkPolicy.monitoringNamespace }}
{{- $here := printf "namespace: %s" $root.Release.Namespace }}
{{- range regexSplit "(?m)^---$" ($root.Files.Get .file) -1 }}
{{- $object := . | replace "namespace: mooring-system" $here | replace "runbook_url: docs/metrics.md#" $runbook | replace "kubernetes.io/metadata.name: monitoring" $monitoring | fromYaml }}
{{- if $object }}
{{- if eq $object.kind "NetworkPolicy" }}
{{- $_ := set $object.spec "egress" (concat $object.spec.egress $root.Values.networkPolicy.extraEgress) }}
{{- end }}
{{- $labels := include "mooring.labels" $root | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge $labels ($more | default dict) ($object.metadata.labels | default dict)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The version of the API in which the server serves MutatingAdmissionPolicies: v1 from Kubernetes 1.36
on, before that v1beta1 if it is switched on, else nothing.
*/}}
{{- define "mooring.admissionVersion" -}}
{{- if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version -}}
v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
v1beta1
{{- end -}}
{{- end }}
